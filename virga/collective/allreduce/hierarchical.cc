// Hierarchical allreduce: reduce-scatter inside the host, ring across hosts on each shard, allgather inside the host.
//
// With m hosts and s shards (the rank count of the smallest host): a host sends 2(m-1)/m S bytes between hosts,
// whatever its number of ranks; inside, a rank sends up to 2(n-1)/n S. Memory as the phases need. Order of summation:
// inside a host by local index (direct.cc); across hosts on each shard by the ring over hosts (ring.cc). With one host
// the owner scales after the sum. A lost peer: as in the phases; all ranks fail through the epoch's first error.
// Source: two-dimensional allreduce, e.g. Mikami et al., "Massively distributed SGD", 2018; Shi et al., MLSys 2021,
// 2DTAR.

#include "virga/collective/allreduce/hierarchical.h"

#include "virga/collective/hierarchy.h"

namespace virga::collective {

Task<void> allreduce_hierarchical(Comm& comm, FloatVector data, AllreduceOptions options) {
  check(options);
  cluster::OpDescriptor descriptor{net::OpKind::kAllreduce, DType::kFloat32, data.elements};
  descriptor.options = fingerprint(options) | (uint64_t{1} << 60);
  return comm.perform(comm.topology().world(), descriptor, [&](Operation& op) {
    return hierarchical(op, data, [&op, options](unsigned phase, Group across, FloatVector shard) {
      return ring_phase(op, phase, std::move(across), shard, options);
    });
  });
}

}  // namespace virga::collective
