// The frame of hierarchical collectives.
//
//   1  reduce-scatter inside the host: owner j of each host holds the host's sum of shard j
//   2  owners j of all hosts do with shard j what the collective is about
//   3  allgather of the shards inside the host
//
// There are as many owners on each host as the smallest host has ranks, so that owner j exists on every host. Steps,
// bytes and memory: those of allgather/direct.cc and reduce_scatter/direct.cc inside, and of step 2. Order of summation
// inside a host: by local index. A lost peer: as in the steps; all ranks fail through the epoch's first error.

#include "virga/collective/hierarchy.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kReduceInside = 0, kAcross = kPhases, kGatherInside = 2 * kPhases };

// The ranks of members that are told by their position.
Group group_of(const Group& group, const Group& positions) {
  std::vector<Rank> ranks;
  for (int position : positions.ranks()) ranks.push_back(group.rank(position));
  return Group(std::move(ranks));
}

// What the members of a host do with the whole vector: its owners own a shard each, the others none.
Shape inside(const Shape& whole, const Group& positions) {
  Shape shape = whole;
  shape.wire = whole.dtype;
  shape.layout = std::make_shared<const cluster::Topology>(whole.layout->of(positions));
  const int owners = whole.layout->owners_per_host();
  shape.offsets.assign(static_cast<size_t>(positions.size()) + 1, whole.elements);
  for (int owner = 0; owner < owners; ++owner) {
    shape.offsets[static_cast<size_t>(owner)] = pattern::shard(whole.elements, owners, owner).begin;
  }
  if (whole.reduction == Reduction::kAverage) shape.reduction = Reduction::kSum;  // divided between the hosts, once
  shape.divisor = 1;
  return shape;
}

Shape across_hosts(const Shape& whole, const Group& positions, pattern::Range shard) {
  Shape shape = whole;
  shape.layout = std::make_shared<const cluster::Topology>(whole.layout->of(positions));
  shape.elements = shard.size();
  return shape;
}

void charge_inside(const Shape& shape, const Algorithm& algorithm, Ledger& ledger) {
  ledger.at_once(shape.layout->host_count(), [&](int host) {
    const Group positions(shape.layout->ranks_of(host));
    const Ledger::Members members(ledger, positions.ranks());
    algorithm.charge(inside(shape, positions), ledger);
  });
}

}  // namespace

pattern::Range owned_shard(const Shape& shape, int member) {
  const int owners = shape.layout->owners_per_host(), local = shape.layout->local_index(member);
  return local < owners ? pattern::shard(shape.elements, owners, local) : pattern::Range{};
}

Task<void> hierarchical(Operation& op, Request request, std::function<Task<void>(Operation&, Request)> across) {
  const cluster::Topology& layout = *request.shape.layout;
  const int me = request.me(op), local = layout.local_index(me);
  const Group host = layout.same_host(me);
  Request part = request;
  part.group = group_of(request.group, host);
  part.shape = inside(request.shape, host);
  part.phase = request.phase + kReduceInside;
  co_await reduce_scatter_direct.run(op, part);
  if (local < layout.owners_per_host()) {
    const Group owners = layout.across_hosts(local);
    const pattern::Range shard = owned_shard(request.shape, me);
    Request own = request;
    own.group = group_of(request.group, owners);
    own.shape = across_hosts(request.shape, owners, shard);
    own.in = own.out = request.out.part(shard);
    own.phase = request.phase + kAcross;
    co_await across(op, std::move(own));
  }
  part.phase = request.phase + kGatherInside;
  co_await allgather_direct.run(op, std::move(part));
}

void charge_hierarchical(const Shape& shape, Ledger& ledger, void (*across)(const Shape&, Ledger&)) {
  const cluster::Topology& layout = *shape.layout;
  charge_inside(shape, reduce_scatter_direct, ledger);
  ledger.at_once(layout.owners_per_host(), [&](int owner) {
    const Group positions = layout.across_hosts(owner);
    const Ledger::Members members(ledger, positions.ranks());
    across(across_hosts(shape, positions, owned_shard(shape, positions.rank(0))), ledger);
  });
  charge_inside(shape, allgather_direct, ledger);
}

}  // namespace virga::collective
