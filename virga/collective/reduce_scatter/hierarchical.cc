// Hierarchical reduce-scatter: sums of hosts first, then across hosts.
//
//   1  on every host each part has a handler: its owner, or on other hosts a relay (relay.h). All others on the host
//      send it their values of that part; it adds up what the host has
//   2  relays send these sums to the owner, which adds them up
//
// Hosts and parts may have any sizes. Slices of all parts with the same index go together, kLanes at once.
// Rounds 2, of which one is between hosts; bytes a host sends to others: S less the parts of its own members, whatever
// its number of ranks; bytes inside a host, a rank: S less the parts that it handles. Memory a lane: for each part that
// a rank handles one m-th of a slice for each other rank of its host, and one for the sum; at the owner one slice for
// what other hosts send. Order of summation: inside a host by local index, then across hosts by host number; halves are
// rounded once in each of the two. The owner divides the sum of an average. A lost peer: the handlers that wait for it,
// and through them the owners. Source: two-level reduction, textbook; as in Mikami et al., "Massively distributed SGD",
// 2018, with direct exchange across hosts.

#include "virga/collective/algorithm.h"
#include "virga/collective/inputs.h"
#include "virga/collective/part_slices.h"
#include "virga/collective/relay.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

using pattern::PartSlices;

enum Phase : unsigned { kInside = 0, kAcross = 1 };

// So that what one owner receives from all hosts is one slice.
PartSlices slices_of(const Shape& shape) {
  return part_slices(shape, shape.slice_elements() / static_cast<size_t>(shape.layout->host_count()));
}

size_t finished_bytes(const Shape& shape, size_t bytes) {
  return reduced_bytes(static_cast<size_t>(shape.layout->host_count()), bytes) +
         (shape.divisor > 1 ? divided_bytes(bytes) : 0);
}

struct Slice {
  Operation& op;
  const Request& request;
  const PartSlices& slices;
  int me;
  size_t index;

  const Shape& shape() const { return request.shape; }
  const cluster::Topology& layout() const { return *request.shape.layout; }
  int host() const { return layout().host_of(me); }
  Vector part(int owner) const { return request.out.part(slices.at(owner, index)); }
  // An owner gets one part only, so the phase alone tells what comes from other hosts.
  uint64_t chunk(Phase phase, int owner) const {
    return chunk_number(request.phase + phase, index, phase == kInside ? static_cast<unsigned>(owner) : 0);
  }
};

// The sum of a part over this host, into `sum`, which may be this member's own values.
Task<void> sum_of_host(Slice slice, int owner, Vector sum) {
  const Vector own = slice.part(owner);
  Inputs inputs(own);  // by local index
  std::vector<Task<void>> receives;
  for (int member : slice.layout().ranks_of(slice.host())) {
    if (member == slice.me) {
      inputs.add_own();
      continue;
    }
    receives.push_back(slice.op.receive(slice.request.group.rank(member), slice.chunk(kInside, owner),
                                        inputs.add_incoming().buffer()));
  }
  co_await when_all(std::move(receives), &slice.op.scope());
  co_await slice.op.work(reduced_bytes(inputs.count(), own.bytes()), [&] { inputs.reduce_into(sum, slice.shape()); });
}

Task<void> relay(Slice slice, int owner) {
  const Vector values = slice.part(owner);
  const bool alone = slice.layout().ranks_of(slice.host()).size() == 1;
  const Scratch memory(alone ? 0 : values.elements, values);
  const Vector sum = alone ? values : memory.vector();
  if (!alone) co_await sum_of_host(slice, owner, sum);
  co_await slice.op.send(slice.request.group.rank(owner), slice.chunk(kAcross, owner), sum.buffer());
}

// What this member's part comes to.
Task<void> collect(Slice slice) {
  const Vector own = slice.part(slice.me);
  Inputs inputs(own);  // by host
  std::vector<Task<void>> arrivals;
  for (int host = 0; host < slice.layout().host_count(); ++host) {
    if (host == slice.host()) {
      inputs.add_own();
      arrivals.push_back(sum_of_host(slice, slice.me, own));
      continue;
    }
    const Rank from = slice.request.group.rank(handler(slice.layout(), host, slice.me));
    arrivals.push_back(slice.op.receive(from, slice.chunk(kAcross, slice.me), inputs.add_incoming().buffer()));
  }
  co_await when_all(std::move(arrivals), &slice.op.scope());
  const Shape& shape = slice.shape();
  co_await slice.op.work(finished_bytes(shape, own.bytes()), [&] {
    inputs.reduce_into(own, shape);
    if (!own.phantom() && shape.divisor > 1) kernel::divide(own.dtype, own.span(), shape.divisor);
  });
}

// All that this member does for one slice of all parts, at once, so that nobody waits for a member that waits for him.
Task<void> reduce_slice(Slice slice) {
  const int n = slice.request.group.size();
  std::vector<Task<void>> all;
  for (int distance = 0; distance < n; ++distance) {
    const int owner = (slice.me + distance) % n;
    const Vector part = slice.part(owner);
    if (part.elements == 0) continue;
    const int handles = handler(slice.layout(), slice.host(), owner);
    if (handles != slice.me) {
      all.push_back(slice.op.send(slice.request.group.rank(handles), slice.chunk(kInside, owner), part.buffer()));
    } else {
      all.push_back(owner == slice.me ? collect(slice) : relay(slice, owner));
    }
  }
  co_await when_all(std::move(all), &slice.op.scope());
}

Task<void> run(Operation& op, Request request) {
  const PartSlices slices = slices_of(request.shape);
  const int me = request.me(op);
  co_await run_lanes(slices.count(), kLanes, op.scope(), [&](size_t i) {
    return reduce_slice({op, request, slices, me, i});
  });
}

// Both rounds of one owner's part.
void charge_part(const Shape& shape, int owner, size_t bytes, Ledger& ledger) {
  const cluster::Topology& layout = *shape.layout;
  ledger.round();
  for (int host = 0; host < layout.host_count(); ++host) {
    const int to = handler(layout, host, owner);
    for (int from : layout.ranks_of(host)) {
      if (from != to) ledger.send(from, to, bytes);
    }
    ledger.work(to, reduced_bytes(layout.ranks_of(host).size(), bytes));
  }
  ledger.round();
  for (int host = 0; host < layout.host_count(); ++host) {
    const int from = handler(layout, host, owner);
    if (from != owner) ledger.send(from, owner, bytes);
  }
  ledger.work(owner, finished_bytes(shape, bytes));
}

void charge(const Shape& shape, Ledger& ledger) {
  const PartSlices slices = slices_of(shape);
  ledger.phase();
  slices.for_equal([&](size_t index, size_t count) {
    ledger.slice(count);
    ledger.at_once(shape.members(), [&](int owner) {
      const size_t bytes = slices.at(owner, index).size() * size_of(shape.dtype);
      if (bytes > 0) charge_part(shape, owner, bytes, ledger);
    });
  });
}

}  // namespace

const Algorithm reduce_scatter_hierarchical{OpKind::kReduceScatter, "hierarchical", run, charge};

}  // namespace virga::collective
