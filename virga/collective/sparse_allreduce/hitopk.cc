// HiTopK: dense where links are fast, sparse where they are slow.
//
//   1  reduce-scatter inside the host: owner j of each host holds the host's sum of shard j
//   2  residual + shard * scale; its top k leave, the rest stays in the residual: one residual a host, not one a rank
//   3  owner j of every host exchanges the selections with the other hosts' owners j; all add them in host order
//   4  allgather of the shards inside the host
//
// With m hosts and s shards of S/s elements: rounds 1 + 1 + 1, in slices; bytes between hosts (m-1) s p a host, where
// p = SparseFormat(S/s, k).payload_bytes() and k = density * S/s, whatever the number of ranks on the host; inside a
// host as the dense phases. Memory: the residual (S/s), m p for messages, and (n-1) slices a lane in phase 1. Order of
// summation: inside a host by local index, across hosts by host number. A lost peer: as in the phases; all ranks fail
// through the epoch's first error. The residual then holds what it held after step 2; the payload is not lost if the
// caller restores it. Source: Shi et al., "Towards scalable distributed training of deep learning on public cloud
// clusters", MLSys 2021, with exact top-k in place of MSTopK.

#include "virga/collective/sparse_allreduce/hitopk.h"

#include "virga/collective/hierarchy.h"

namespace virga::collective {

pattern::Range hitopk_residual_range(const cluster::Topology& topology, Rank rank, size_t elements) {
  const int owners = topology.owners_per_host(), local = topology.local_index(rank);
  return local < owners ? pattern::shard(elements, owners, local) : pattern::Range{};
}

Task<void> sparse_allreduce_hitopk(Comm& comm, FloatVector data, SparseOptions options, Selector& selector) {
  sparse_format(data.elements, options);  // throws on options that can't be followed, before anything is sent
  const size_t expected = hitopk_residual_range(comm.topology(), comm.rank(), data.elements).size();
  require(data.phantom() || selector.feedback.residual().size() == expected,
          "hitopk: the residual of rank {} has {} elements where its shard has {}", comm.rank(),
          selector.feedback.residual().size(), expected);
  cluster::OpDescriptor descriptor{net::OpKind::kSparseAllreduce, DType::kFloat32, data.elements};
  descriptor.codec = static_cast<uint32_t>(options.value_dtype);
  descriptor.options = fingerprint(options) ^ (uint64_t{1} << 63);
  return comm.perform(comm.topology().world(), descriptor, [&](Operation& op) {
    return hierarchical(op, data, [&op, options, &selector](unsigned phase, Group across, FloatVector shard) {
      return exchange_selected(op, phase, std::move(across), shard, options, selector);
    });
  });
}

}  // namespace virga::collective
