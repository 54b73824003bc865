// Flat top-k: every member selects, all exchange what they selected and add it up.
//
// Rounds 1; bytes sent (n-1) p per member, where p = SparseFormat(S, k).payload_bytes(): grows with the number of
// members, and n ranks of a host share its link. Memory n p and the residual (S). Order of summation: member 0, 1, ...,
// n-1, from zero. A lost peer: all that wait for its message fail, the others through the epoch's first error; the
// residual then holds what it held after the selection. Source: top-k SGD with error feedback, Stich et al. 2018;
// "NaiveAG" in Shi et al., MLSys 2021.

#include "virga/collective/sparse_allreduce/selection.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) { return exchange_selections(op, std::move(request), allgather_direct); }

void charge(const Shape& shape, Ledger& ledger) { charge_exchange_selections(shape, ledger, allgather_direct); }

}  // namespace

const Algorithm sparse_allreduce_flat{OpKind::kSparseAllreduce, "flat", run, charge};

}  // namespace virga::collective
