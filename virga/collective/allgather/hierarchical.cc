// Hierarchical allgather: across hosts first, then inside.
//
//   1  the owner of a part sends it to one member of every other host, its relay there (relay.h), and to all others of
//      its own host
//   2  relays send it to all others of their host
//
// Hosts and parts may have any sizes. Slices of all parts with the same index go together, kLanes at once.
// Rounds 2, of which one is between hosts; bytes a host sends to others: m-1 times the parts of its own members,
// whatever the number of ranks there; bytes inside a host, a rank: for each other one the parts that it handles. Memory
// none; no arithmetic. A lost peer: those that wait for its part, or for those that it relays. Source: two-level
// gathering, textbook; the reverse of reduce_scatter/hierarchical.cc.

#include "virga/collective/algorithm.h"
#include "virga/collective/part_slices.h"
#include "virga/collective/relay.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

using pattern::PartSlices;

PartSlices slices_of(const Shape& shape) { return part_slices(shape, shape.slice_elements()); }

struct Slice {
  Operation& op;
  const Request& request;
  const PartSlices& slices;
  int me;
  size_t index;

  const cluster::Topology& layout() const { return *request.shape.layout; }
  Vector part(int owner) const { return request.out.part(slices.at(owner, index)); }
  Task<void> send(int to, int owner) const {
    return op.send(request.group.rank(to), chunk(owner), part(owner).buffer());
  }
  Task<void> receive(int from, int owner) const {
    return op.receive(request.group.rank(from), chunk(owner), part(owner).buffer());
  }

 private:
  uint64_t chunk(int owner) const { return chunk_number(request.phase, index, static_cast<unsigned>(owner)); }
};

// From this member, which handles the part, to all others of its host.
Task<void> hand_out(Slice slice, int owner) {
  const std::vector<int>& members = slice.layout().ranks_of(slice.layout().host_of(slice.me));
  std::vector<Task<void>> sends;
  for (size_t step = 1; step < members.size(); ++step) {
    const size_t local = static_cast<size_t>(slice.layout().local_index(slice.me));
    sends.push_back(slice.send(members[(local + step) % members.size()], owner));
  }
  co_await when_all(std::move(sends), &slice.op.scope());
}

// From its owner to one member of every other host.
Task<void> send_across(Slice slice) {
  const int hosts = slice.layout().host_count(), host = slice.layout().host_of(slice.me);
  std::vector<Task<void>> sends;
  for (int step = 1; step < hosts; ++step) {
    sends.push_back(slice.send(handler(slice.layout(), (host + step) % hosts, slice.me), slice.me));
  }
  co_await when_all(std::move(sends), &slice.op.scope());
}

Task<void> relay(Slice slice, int owner) {
  co_await slice.receive(owner, owner);
  co_await hand_out(slice, owner);
}

// All that this member does for one slice of all parts, at once, so that nobody waits for a member that waits for him.
Task<void> gather_slice(Slice slice) {
  std::vector<Task<void>> all;
  for (int owner = 0; owner < slice.request.group.size(); ++owner) {
    if (slice.part(owner).elements == 0) continue;
    const int handles = handler(slice.layout(), slice.layout().host_of(slice.me), owner);
    if (owner == slice.me) {
      all.push_back(send_across(slice));
      all.push_back(hand_out(slice, owner));
    } else {
      all.push_back(handles == slice.me ? relay(slice, owner) : slice.receive(handles, owner));
    }
  }
  co_await when_all(std::move(all), &slice.op.scope());
}

Task<void> run(Operation& op, Request request) {
  const PartSlices slices = slices_of(request.shape);
  const int me = request.me(op);
  co_await run_lanes(slices.count(), kLanes, op.scope(), [&](size_t i) {
    return gather_slice({op, request, slices, me, i});
  });
}

void charge_host(const cluster::Topology& layout, int handler, size_t bytes, Ledger& ledger) {
  for (int to : layout.ranks_of(layout.host_of(handler))) {
    if (to != handler) ledger.send(handler, to, bytes);
  }
}

// Both rounds of one owner's part.
void charge_part(const cluster::Topology& layout, int owner, size_t bytes, Ledger& ledger) {
  const auto for_others = [&](auto body) {
    for (int host = 0; host < layout.host_count(); ++host) {
      if (host != layout.host_of(owner)) body(handler(layout, host, owner));
    }
  };
  ledger.round();
  charge_host(layout, owner, bytes, ledger);
  for_others([&](int relay) { ledger.send(owner, relay, bytes); });
  ledger.round();
  for_others([&](int relay) { charge_host(layout, relay, bytes, ledger); });
}

void charge(const Shape& shape, Ledger& ledger) {
  const PartSlices slices = slices_of(shape);
  ledger.phase();
  slices.for_equal([&](size_t index, size_t count) {
    ledger.slice(count);
    ledger.at_once(shape.members(), [&](int owner) {
      const size_t bytes = slices.at(owner, index).size() * size_of(shape.dtype);
      if (bytes > 0) charge_part(*shape.layout, owner, bytes, ledger);
    });
  });
}

}  // namespace

const Algorithm allgather_hierarchical{OpKind::kAllgather, "hierarchical", run, charge};

}  // namespace virga::collective
