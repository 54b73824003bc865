// Reduce along a chain, pipelined in slices: the broadcast's chain backwards.
//
// The member that is farthest behind the root sends its slices to the one before it, which adds its own and passes the
// sum on, up to the root. Rounds n-1 for the first slice; bytes S sent per member (the root sends none); memory two
// slices a lane. Order of summation: the farthest member first, the root last; halves are rounded at each member. The
// root divides an average. A lost peer: the one before it fails, the others through the epoch's first error. Source:
// the pipelined chain, textbook; "linear pipelining" in Wang et al., CLUSTER 2016.

#include <algorithm>

#include "virga/collective/algorithm.h"
#include "virga/pattern/ring.h"

namespace virga::collective {
namespace {

size_t add_bytes(size_t bytes) { return 3 * bytes; }

// The sum so far, with this member's own values.
void add(const Shape& shape, Vector sum, Vector coming, Vector own) {
  const std::span<const std::byte> inputs[] = {coming.span(), own.span()};
  kernel::reduce(shape.reduce_op(), shape.dtype, sum.span(), inputs);
}

Task<void> pass_slice(Operation& op, const Request& request, pattern::Chain chain, Vector own, size_t begin,
                      uint64_t chunk) {
  const Shape& shape = request.shape;
  const Scratch coming(own.elements, own), room(chain.first() ? 0 : own.elements, own);
  const Vector sum = chain.first() ? request.out.part({begin, begin + own.elements}) : room.vector();
  if (!chain.last()) co_await op.receive(request.group.rank(chain.next()), chunk, coming.vector().buffer());
  co_await op.work(add_bytes(own.bytes()), [&] {
    if (own.phantom() || sum.phantom()) return;
    if (!chain.last()) add(shape, sum, coming.vector(), own);
    if (chain.last() && sum.data != own.data) std::ranges::copy(own.span(), sum.data);
    if (chain.first() && shape.divisor > 1) kernel::divide(shape.dtype, sum.span(), shape.divisor);
  });
  if (!chain.first()) co_await op.send(request.group.rank(chain.previous()), chunk, sum.buffer());
}

Task<void> run(Operation& op, Request request) {
  const pattern::Chain chain{request.group.size(), request.shape.root, request.me(op)};
  const size_t length = request.shape.slice_elements();
  co_await run_slices(op, request.in, length, [&](Vector own, size_t i) {
    return pass_slice(op, request, chain, own, i * length, chunk_number(request.phase, i, 0));
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  const auto at = [&](int distance) { return (shape.root + distance) % n; };
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    const size_t bytes = length * size_of(shape.dtype);
    ledger.slice(count);
    ledger.work(at(n - 1), add_bytes(bytes));
    for (int distance = n - 1; distance > 0; --distance) {
      ledger.round();
      ledger.send(at(distance), at(distance - 1), bytes);
      ledger.work(at(distance - 1), add_bytes(bytes));
    }
  });
}

}  // namespace

const Algorithm reduce_chain{OpKind::kReduce, "chain", run, charge};

}  // namespace virga::collective
