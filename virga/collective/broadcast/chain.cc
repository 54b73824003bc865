// Broadcast along a chain, pipelined in slices.
//
// The root sends slice after slice to the next member, which passes each on while the following one comes in.
// Rounds n-2+slices; bytes S sent per member (the last sends none); memory none. A lost peer: those behind it wait
// until the epoch fails or the deadline passes. Source: the pipelined chain, textbook; "linear pipelining" in Wang et
// al., CLUSTER 2016.

#include "virga/collective/chain.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) {
  const pattern::Chain chain{request.group.size(), request.shape.root, request.me(op)};
  co_await run_slices(op, request.out, request.shape.slice_elements(), [&](Vector slice, size_t i) {
    return broadcast_along(op, request, chain, slice, chunk_number(request.phase, i, 0));
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    ledger.slice(count);
    charge_broadcast_along(shape, shape.root, length * size_of(shape.dtype), ledger);
  });
}

}  // namespace

const Algorithm broadcast_chain{OpKind::kBroadcast, "chain", run, charge};

}  // namespace virga::collective
