// HiTopK: dense where links are fast, sparse where they are slow.
//
//   1  reduce-scatter inside the host: owner j of each host holds the host's sum of shard j
//   2  residual + shard / n; its top k leave, the rest stays in the residual: one residual a host, not one a rank
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

#include "virga/collective/hierarchy.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) {
  return hierarchical(op, std::move(request), sparse_allreduce_flat.run);
}

void charge(const Shape& shape, Ledger& ledger) { charge_hierarchical(shape, ledger, sparse_allreduce_flat.charge); }

}  // namespace

const Algorithm sparse_allreduce_hitopk{OpKind::kSparseAllreduce, "hitopk", run, charge, nullptr, owned_shard};

}  // namespace virga::collective
