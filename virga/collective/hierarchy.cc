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

#include "virga/collective/allgather/direct.h"
#include "virga/collective/reduce_scatter/direct.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kReduceInside = 0, kAcross = 1, kGatherInside = 3 };

}  // namespace

Task<void> hierarchical(Operation& op, FloatVector data, AcrossHosts across) {
  const cluster::Topology& topology = op.comm().topology();
  const Rank rank = op.comm().rank();
  const Group host = topology.same_host(rank);
  const int owners = topology.owners_per_host(), local = topology.local_index(rank);
  co_await reduce_scatter_direct(op, kReduceInside, host, owners, data);
  if (local < owners) {
    const FloatVector shard = data.part(pattern::shard(data.elements, owners, local));
    co_await across(kAcross, topology.across_hosts(local), shard);
  }
  co_await allgather_direct(op, kGatherInside, host, owners, data);
}

}  // namespace virga::collective
