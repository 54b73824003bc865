// Broadcast along a chain, pipelined in slices.
//
// The root sends slice after slice to the next member, which passes each on while the following one comes in.
// Rounds n-2+slices; bytes S sent per member (the last sends none); memory none. A lost peer: those behind it wait
// until the epoch fails or the deadline passes. Source: the pipelined chain, textbook; "linear pipelining" in Wang et
// al., CLUSTER 2016.

#include "virga/collective/algorithm.h"
#include "virga/pattern/ring.h"

namespace virga::collective {
namespace {

Task<void> pass_slice(Operation& op, const Request& request, Vector slice, uint64_t chunk) {
  const pattern::Chain chain{request.group.size(), request.shape.root, request.me(op)};
  if (!chain.first()) co_await op.receive(request.group.rank(chain.previous()), chunk, slice.buffer());
  if (!chain.last()) co_await op.send(request.group.rank(chain.next()), chunk, slice.buffer());
}

Task<void> run(Operation& op, Request request) {
  co_await run_slices(op, request.out, request.shape.slice_elements(), [&](Vector slice, size_t i) {
    return pass_slice(op, request, slice, chunk_number(request.phase, i, 0));
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  const int members = shape.members();
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    ledger.slice(count);
    for (int distance = 0; distance + 1 < members; ++distance) {
      ledger.round();
      ledger.send((shape.root + distance) % members, (shape.root + distance + 1) % members,
                  length * size_of(shape.dtype));
    }
  });
}

}  // namespace

const Algorithm broadcast_chain{OpKind::kBroadcast, "chain", run, charge};

}  // namespace virga::collective
