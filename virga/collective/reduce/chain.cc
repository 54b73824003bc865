// Reduce along a chain, pipelined in slices: the broadcast's chain backwards.
//
// The member that is farthest behind the root sends its slices to the one before it, which adds its own and passes the
// sum on, up to the root. Rounds n-1 for the first slice; bytes S sent per member (the root sends none); memory a slice
// a lane. Order of summation: the farthest member first, the root last; halves are rounded at each member. The root
// divides an average. A lost peer: the one before it fails, the others through the epoch's first error. Source: the
// pipelined chain, textbook; "linear pipelining" in Wang et al., CLUSTER 2016.

#include "virga/collective/chain.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) {
  const pattern::Chain chain{request.group.size(), request.shape.root, request.me(op)};
  const size_t length = request.shape.slice_elements();
  co_await run_slices(op, request.in, length, [&](Vector own, size_t i) {
    return reduce_along(op, request, chain, own, i * length, chunk_number(request.phase, i, 0));
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    ledger.slice(count);
    charge_reduce_along(shape, shape.root, length * size_of(shape.dtype), ledger);
  });
}

}  // namespace

const Algorithm reduce_chain{OpKind::kReduce, "chain", run, charge};

}  // namespace virga::collective
