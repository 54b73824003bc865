// Hierarchical allreduce: reduce-scatter inside the host, ring across hosts on each shard, allgather inside the host.
//
// With m hosts and s shards (the rank count of the smallest host): a host sends 2(m-1)/m S bytes between hosts,
// whatever its number of ranks; inside, a rank sends up to 2(n-1)/n S. Memory as the phases need. Order of summation:
// inside a host by local index (direct.cc); across hosts on each shard by the ring over hosts (ring.cc). With one host
// the owner scales after the sum. A lost peer: as in the phases; all ranks fail through the epoch's first error.
// Source: two-dimensional allreduce, e.g. Mikami et al., "Massively distributed SGD", 2018; Shi et al., MLSys 2021,
// 2DTAR.

#include "virga/collective/allreduce/hierarchical.h"

#include "virga/collective/allgather/direct.h"
#include "virga/collective/reduce_scatter/direct.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kReduceInside = 0, kRing = 1, kGatherInside = 3 };

Task<void> hierarchical(Operation& op, FloatVector data, AllreduceOptions options) {
  const cluster::Topology& topology = op.comm().topology();
  const Rank rank = op.comm().rank();
  const Group host = topology.same_host(rank);
  const int owners = topology.owners_per_host(), local = topology.local_index(rank);
  co_await reduce_scatter_direct(op, kReduceInside, host, owners, data);
  if (local < owners) {
    const FloatVector shard = data.part(pattern::shard(data.elements, owners, local));
    co_await ring_phase(op, kRing, topology.across_hosts(local), shard, options);
  }
  co_await allgather_direct(op, kGatherInside, host, owners, data);
}

}  // namespace

Task<void> allreduce_hierarchical(Comm& comm, FloatVector data, AllreduceOptions options) {
  check(options);
  cluster::OpDescriptor descriptor{net::OpKind::kAllreduce, DType::kFloat32, data.elements};
  descriptor.options = fingerprint(options) | (uint64_t{1} << 60);
  auto op = comm.begin(comm.topology().world(), descriptor);
  Operation& running = *op;
  return Operation::complete(std::move(op), hierarchical(running, data, options));
}

}  // namespace virga::collective
