// Hierarchical alltoall: what the members of one host have for those of another is one message between the two.
//
//   1  every member sends the relay for each other host what it has for the members there, in one message; the members
//      of a host take turns as relays. To the members of its own host it sends their parts
//   2  the relays of two hosts exchange what all members of theirs have for all members of the other
//   3  relays send every member of their host what came for it, in one message for each other host
//
// Hosts and parts may have any sizes; all members know them. Slices of all parts with the same index go together,
// kLanes at once; a slice is what a member relays each way at most. Rounds 3, of which one is between hosts; messages
// that a host sends to others m-1 a slice; bytes as pairwise.cc; inside a host parts to and from other hosts move once
// more each way. Memory a lane: two slices for what a member relays, and its own parts for and from others. No
// arithmetic. A lost peer: the relays that wait for it, and those that wait for them; all others through the epoch's
// first error. Source: two-level alltoall, textbook; Träff and Rougier, "MPI collectives and datatypes for hierarchical
// all-to-all communication", EuroMPI 2014.

#include <algorithm>

#include "virga/collective/alltoall/alltoall.h"
#include "virga/pattern/part_slices.h"
#include "virga/pattern/ring.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

using cluster::Topology;
using pattern::PartSlices;
using pattern::Range;

enum Phase : unsigned { kInside = 0, kToRelay = 1, kAcross = 2, kFromRelay = 3 };

// So that all that a member relays one way is one slice.
PartSlices slices_of(const Shape& shape) {
  const auto hosts = static_cast<size_t>(shape.layout->host_count());
  const int parts = shape.members() * shape.members();
  size_t relayed = 1;  // most parts that a member relays: for so many hosts, between all members of two
  for (int host = 0; host < shape.layout->host_count(); ++host) {
    for (int other = 0; other < shape.layout->host_count(); ++other) {
      const size_t here = shape.layout->ranks_of(host).size(), there = shape.layout->ranks_of(other).size();
      if (other != host) relayed = std::max(relayed, (hosts - 1 + here - 1) / here * here * there);
    }
  }
  std::vector<Range> all;
  for (int part = 0; part < parts; ++part) all.push_back(shape.part(part));
  return {std::move(all), std::max<size_t>(shape.slice_elements() / relayed, 1)};
}

// The member of `host` that exchanges messages with `other`.
int relay_for(const Topology& layout, int host, int other) {
  const int turn = pattern::distance_behind(host, other, layout.host_count()) - 1;
  const std::vector<Rank>& members = layout.ranks_of(host);
  return members[static_cast<size_t>(turn) % members.size()];
}

// A slice of all parts from the members of one host to those of another: by receiver, then by sender.
class Bundle {
 public:
  Bundle(const Topology& layout, const PartSlices& slices, size_t index, int from_host, int to_host)
      : senders_(layout.ranks_of(from_host).size()), begin_(1) {
    for (int to : layout.ranks_of(to_host)) {
      for (int from : layout.ranks_of(from_host)) {
        begin_.push_back(begin_.back() + slices.at(from * layout.world_size() + to, index).size());
      }
    }
  }

  size_t elements() const { return begin_.back(); }
  // Members by their local indices.
  Range at(size_t from, size_t to) const { return {begin_[to * senders_ + from], begin_[to * senders_ + from + 1]}; }
  Range for_receiver(size_t to) const { return {begin_[to * senders_], begin_[(to + 1) * senders_]}; }
  size_t of_sender(size_t from) const {
    size_t sum = 0;
    for (size_t to = 0; (to + 1) * senders_ < begin_.size(); ++to) sum += at(from, to).size();
    return sum;
  }

 private:
  size_t senders_;
  std::vector<size_t> begin_;
};

// Vectors that one message holds, one behind the other.
using Pieces = std::vector<Vector>;

size_t elements_of(const Pieces& pieces) {
  size_t sum = 0;
  for (const Vector& piece : pieces) sum += piece.elements;
  return sum;
}

// What is copied is read and written.
size_t copied_bytes(Vector vector) { return 2 * vector.bytes(); }

void copy(Vector to, Vector from) {
  if (!to.phantom() && !from.phantom()) std::ranges::copy(from.span(), to.data);
}

void copy_each(const Pieces& to, const Pieces& from) {
  for (size_t i = 0; i < to.size(); ++i) copy(to[i], from[i]);
}

// `whole` in pieces as long as these.
Pieces cut(Vector whole, const Pieces& like) {
  Pieces pieces;
  size_t begin = 0;
  for (const Vector& piece : like) {
    pieces.push_back(whole.part({begin, begin + piece.elements}));
    begin += piece.elements;
  }
  return pieces;
}

struct Slice {
  Operation& op;
  const Request& request;
  const PartSlices& slices;
  const std::vector<size_t>& arrivals;  // by member: where its part begins in `out`
  int me;
  size_t index;

  const Topology& layout() const { return *request.shape.layout; }
  int host() const { return layout().host_of(me); }
  size_t local() const { return static_cast<size_t>(layout().local_index(me)); }
  const std::vector<Rank>& members(int host) const { return layout().ranks_of(host); }
  Bundle bundle(int from_host, int to_host) const { return {layout(), slices, index, from_host, to_host}; }
  // What other members' parts go through. One that has no elements itself can't tell that others' are phantoms.
  Scratch memory(size_t elements) const {
    return {elements, request.shape.dtype, request.in.phantom() ? request.in : request.out};
  }

  Vector goes(int to) const {
    const Range range = slices.at(me * layout().world_size() + to, index);
    const size_t begin = request.shape.part(me * layout().world_size()).begin;
    return request.in.part({range.begin - begin, range.end - begin});
  }
  Vector comes(int from) const {
    const int part = from * layout().world_size() + me;
    const Range range = slices.at(part, index);
    const size_t begin = arrivals[static_cast<size_t>(from)] + range.begin - request.shape.part(part).begin;
    return request.out.part({begin, begin + range.size()});
  }
  Pieces goes_to_host(int host) const {
    Pieces pieces;
    for (int to : members(host)) pieces.push_back(goes(to));
    return pieces;
  }
  Pieces comes_from_host(int host) const {
    Pieces pieces;
    for (int from : members(host)) pieces.push_back(comes(from));
    return pieces;
  }

  // No message where there is nothing to send. A phase has one at most between two members about a third one's host.
  uint64_t chunk(Phase phase, int host) const {
    return chunk_number(request.phase + phase, index, static_cast<unsigned>(host));
  }
  Task<void> send(int to, uint64_t chunk, Vector vector) const {
    if (vector.elements > 0) co_await op.send(request.group.rank(to), chunk, vector.buffer());
  }
  Task<void> receive(int from, uint64_t chunk, Vector vector) const {
    if (vector.elements > 0) co_await op.receive(request.group.rank(from), chunk, vector.buffer());
  }
};

// One message, in pieces.
Task<void> receive_pieces(Slice slice, int from, uint64_t chunk, Pieces pieces) {
  const size_t elements = elements_of(pieces);
  if (elements == 0) co_return;
  const Scratch room = slice.memory(elements);
  const Vector whole = room.vector();
  const auto use = [&](net::ConstBuffer payload) {
    const Vector came(const_cast<std::byte*>(payload.data), whole.elements, whole.dtype);
    copy_each(pieces, cut(came, pieces));
  };
  const Rank rank = slice.request.group.rank(from);
  co_await slice.op.receive_and_use(rank, chunk, whole.buffer(), copied_bytes(whole), use);
}

// What this member has for another host, to the relay.
Task<void> hand_in(Slice slice, int host) {
  const Pieces pieces = slice.goes_to_host(host);
  const Scratch memory = slice.memory(elements_of(pieces));
  const Vector whole = memory.vector();
  co_await slice.op.work(copied_bytes(whole), [&] { copy_each(cut(whole, pieces), pieces); });
  co_await slice.send(relay_for(slice.layout(), slice.host(), host), slice.chunk(kToRelay, host), whole);
}

// As a relay: what this host has for another one.
Task<void> send_across(Slice slice, int host) {
  const Bundle bundle = slice.bundle(slice.host(), host);
  const Scratch memory = slice.memory(bundle.elements());
  const std::vector<Rank>& senders = slice.members(slice.host());
  std::vector<Task<void>> all;
  for (size_t from = 0; from < senders.size(); ++from) {
    Pieces places;
    for (size_t to = 0; to < slice.members(host).size(); ++to) {
      places.push_back(memory.vector().part(bundle.at(from, to)));
    }
    if (senders[from] == slice.me) {
      const size_t bytes = 2 * elements_of(places) * size_of(slice.request.shape.dtype);
      all.push_back(slice.op.work(bytes, [slice, host, places] { copy_each(places, slice.goes_to_host(host)); }));
    } else {
      all.push_back(receive_pieces(slice, senders[from], slice.chunk(kToRelay, host), std::move(places)));
    }
  }
  co_await when_all(std::move(all), &slice.op.scope());
  co_await slice.send(relay_for(slice.layout(), host, slice.host()), slice.chunk(kAcross, 0), memory.vector());
}

// As a relay: what another host has for this one.
Task<void> receive_across(Slice slice, int host) {
  const Bundle bundle = slice.bundle(host, slice.host());
  const Scratch memory = slice.memory(bundle.elements());
  co_await slice.receive(relay_for(slice.layout(), host, slice.host()), slice.chunk(kAcross, 0), memory.vector());
  const std::vector<Rank>& receivers = slice.members(slice.host());
  std::vector<Task<void>> all;
  for (size_t step = 0; step < receivers.size(); ++step) {
    const size_t to = (slice.local() + step) % receivers.size();
    const Vector part = memory.vector().part(bundle.for_receiver(to));
    if (receivers[to] == slice.me) {
      all.push_back(slice.op.work(copied_bytes(part), [slice, host, part] {
        const Pieces places = slice.comes_from_host(host);
        copy_each(places, cut(part, places));
      }));
    } else {
      all.push_back(slice.send(receivers[to], slice.chunk(kFromRelay, host), part));
    }
  }
  co_await when_all(std::move(all), &slice.op.scope());
}

void exchange_with_host(Slice slice, int host, std::vector<Task<void>>& all) {
  const int relay = relay_for(slice.layout(), slice.host(), host);
  if (relay == slice.me) {
    all.push_back(send_across(slice, host));
    all.push_back(receive_across(slice, host));
  } else {
    all.push_back(hand_in(slice, host));
    all.push_back(receive_pieces(slice, relay, slice.chunk(kFromRelay, host), slice.comes_from_host(host)));
  }
}

void exchange_inside(const Slice& slice, std::vector<Task<void>>& all) {
  const std::vector<Rank>& members = slice.members(slice.host());
  for (size_t step = 1; step < members.size(); ++step) {
    const Rank to = members[(slice.local() + step) % members.size()];
    const Rank from = members[(slice.local() + members.size() - step) % members.size()];
    all.push_back(slice.send(to, slice.chunk(kInside, 0), slice.goes(to)));
    all.push_back(slice.receive(from, slice.chunk(kInside, 0), slice.comes(from)));
  }
  const Vector own = slice.goes(slice.me), kept = slice.comes(slice.me);
  all.push_back(slice.op.work(copied_bytes(own), [own, kept] { copy(kept, own); }));
}

// All that this member does for one slice of all parts, at once, so that nobody waits for a member that waits for him.
Task<void> exchange_slice(Slice slice) {
  const int hosts = slice.layout().host_count();
  std::vector<Task<void>> all;
  for (int step = 1; step < hosts; ++step) exchange_with_host(slice, (slice.host() + step) % hosts, all);
  exchange_inside(slice, all);
  co_await when_all(std::move(all), &slice.op.scope());
}

Task<void> run(Operation& op, Request request) {
  const PartSlices slices = slices_of(request.shape);
  const int me = request.me(op);
  std::vector<size_t> arrivals = {0};
  for (int from = 0; from < request.group.size(); ++from) {
    arrivals.push_back(arrivals.back() + request.shape.part(from * request.group.size() + me).size());
  }
  co_await run_lanes(slices.count(), kLanes, op.scope(), [&](size_t i) {
    return exchange_slice({op, request, slices, arrivals, me, i});
  });
}

void charge_inside(const Shape& shape, const PartSlices& slices, size_t index, int host, Ledger& ledger) {
  for (int from : shape.layout->ranks_of(host)) {
    for (int to : shape.layout->ranks_of(host)) {
      const size_t bytes = slices.at(from * shape.members() + to, index).size() * size_of(shape.dtype);
      if (from == to) {
        ledger.work(from, 2 * bytes);
      } else if (bytes > 0) {
        ledger.send(from, to, bytes);
      }
    }
  }
}

// To the relays, across, from the relays: as many as the slowest pair of hosts takes. All messages between hosts are
// entered in one round, also those of a host of one member, which has no relay to wait for: inside hosts rounds are
// short.
int rounds_of(const Topology& layout) {
  int several = 0;  // hosts that have several members
  for (int host = 0; host < layout.host_count(); ++host) several += layout.ranks_of(host).size() > 1 ? 1 : 0;
  return std::min(several, 2) + 1;
}

void charge_between(const Shape& shape, const PartSlices& slices, size_t index, int from_host, int to_host,
                    Ledger& ledger) {
  const int rounds = rounds_of(*shape.layout);
  const Topology& layout = *shape.layout;
  const Bundle bundle(layout, slices, index, from_host, to_host);
  const int sender = relay_for(layout, from_host, to_host), receiver = relay_for(layout, to_host, from_host);
  const std::vector<Rank>&senders = layout.ranks_of(from_host), &receivers = layout.ranks_of(to_host);
  const auto bytes_of = [&](size_t elements) { return elements * size_of(shape.dtype); };
  const auto send = [&](int from, int to, size_t bytes) {
    if (bytes > 0 && from != to) ledger.send(from, to, bytes);
  };
  for (size_t i = 0; i < senders.size(); ++i) {
    const size_t bytes = bytes_of(bundle.of_sender(i));
    send(senders[i], sender, bytes);
    ledger.work(sender, 2 * bytes);
    if (senders[i] != sender) ledger.work(senders[i], 2 * bytes);
  }
  if (rounds > 1) ledger.round();
  send(sender, receiver, bytes_of(bundle.elements()));
  if (rounds > 2) ledger.round();
  for (size_t i = 0; i < receivers.size(); ++i) {
    const size_t bytes = bytes_of(bundle.for_receiver(i).size());
    send(receiver, receivers[i], bytes);
    ledger.work(receivers[i], 2 * bytes);
  }
}

void charge(const Shape& shape, Ledger& ledger) {
  const PartSlices slices = slices_of(shape);
  const int hosts = shape.layout->host_count();
  ledger.phase();
  slices.for_equal([&](size_t index, size_t count) {
    ledger.slice(count);
    ledger.at_once(hosts * hosts, [&](int pair) {
      const int from = pair / hosts, to = pair % hosts;
      ledger.round();
      if (from == to) return charge_inside(shape, slices, index, from, ledger);
      charge_between(shape, slices, index, from, to, ledger);
    });
  });
}

}  // namespace

const Algorithm alltoall_hierarchical{OpKind::kAlltoall, "hierarchical", run, charge};

}  // namespace virga::collective
