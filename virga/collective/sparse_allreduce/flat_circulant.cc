// Flat top-k in few rounds: as flat.cc, but selections travel on the circulant graph, for many members.
//
// Rounds ceil(log2 n) instead of one, messages ceil(log2 n) (each in two pieces at most) instead of n-1; bytes sent
// (n-1) p per member, memory n p and the residual, and the order of summation are those of flat.cc, and so is every
// bit. A lost peer: those that wait for what it passes on, the others through the epoch's first error. Source: as
// flat.cc and allgather/circulant.cc.

#include "virga/collective/sparse_allreduce/selection.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) {
  return exchange_selections(op, std::move(request), allgather_circulant);
}

void charge(const Shape& shape, Ledger& ledger) { charge_exchange_selections(shape, ledger, allgather_circulant); }

}  // namespace

const Algorithm sparse_allreduce_flat_circulant{OpKind::kSparseAllreduce, "flat_circulant", run, charge};

}  // namespace virga::collective
