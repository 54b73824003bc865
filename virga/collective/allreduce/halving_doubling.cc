// Allreduce by halving and doubling: a reduce-scatter and an allgather on the circulant graph, few rounds and the
// ring's bytes for any number of members.
//
//   1  reduce-scatter, circulant: member i ends with the sum of shard i
//   2  allgather, circulant, of the shards
//
// Rounds 2 ceil(log2 n); bytes 2(n-1)/n S where n divides the elements; memory that of step 1. Order of summation: that
// of step 1, reduce_scatter/circulant.cc, on shard i. The owner divides the sum of an average. A lost peer: as in the
// steps. Source: Rabenseifner, "Optimization of collective reduction operations", 2004, for powers of two; Träff,
// "Optimal, non-pipelined reduce-scatter and allreduce algorithms", 2024, for any number.

#include "virga/collective/algorithm.h"
#include "virga/collective/wire.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kReduce = 0, kGather = kPhases };

Shape step_of(Shape shape, OpKind kind) {
  shape.kind = kind;
  return shape;
}

Task<void> run(Operation& op, Request request) {
  Request reduce = request;
  reduce.shape = step_of(request.shape, OpKind::kReduceScatter);
  reduce.phase = request.phase + kReduce;
  co_await reduce_scatter_circulant.run(op, std::move(reduce));
  Request gather = request;
  gather.shape = step_of(request.shape, OpKind::kAllgather);
  gather.phase = request.phase + kGather;
  co_await allgather_circulant.run(op, std::move(gather));
}

void charge(const Shape& shape, Ledger& ledger) {
  reduce_scatter_circulant.charge(step_of(shape, OpKind::kReduceScatter), ledger);
  allgather_circulant.charge(step_of(shape, OpKind::kAllgather), ledger);
}

}  // namespace

const Algorithm allreduce_halving_doubling{OpKind::kAllreduce, "halving_doubling", run, charge, fits_no_conversion};

}  // namespace virga::collective
