// HiTopK in few rounds: as hitopk.cc, but selections travel between hosts on the circulant graph, for many hosts.
//
// Step 3 of hitopk.cc takes ceil(log2 m) rounds and as many messages (each in two pieces at most) an owner instead of
// one round of m-1 messages; bytes between hosts (m-1) s p a host, memory, the order of summation and a lost peer are
// as there, and so is every bit. Source: as hitopk.cc and allgather/circulant.cc.

#include "virga/collective/hierarchy.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) {
  return hierarchical(op, std::move(request), sparse_allreduce_flat_circulant.run);
}

void charge(const Shape& shape, Ledger& ledger) {
  charge_hierarchical(shape, ledger, sparse_allreduce_flat_circulant.charge);
}

}  // namespace

const Algorithm sparse_allreduce_hitopk_circulant{
    OpKind::kSparseAllreduce, "hitopk_circulant", run, charge, nullptr, owned_shard};

}  // namespace virga::collective
