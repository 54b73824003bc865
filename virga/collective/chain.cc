#include "virga/collective/chain.h"

#include <algorithm>

#include "virga/collective/inputs.h"

namespace virga::collective {
namespace {

// What the member so far from the root touches to add its own values, or to copy them where it is alone.
size_t touched(const Shape& shape, int distance, size_t bytes) {
  const size_t adding = shape.members() > 1 ? reduced_bytes(2, bytes) : 2 * bytes;
  return adding + (distance == 0 && shape.divisor > 1 ? divided_bytes(bytes) : 0);
}

// sum = the sum so far, and this member's own values; alone it is those.
void add(const Shape& shape, Vector sum, Vector coming, Vector own) {
  const std::span<const std::byte> inputs[] = {coming.span(), own.span()};
  if (shape.members() > 1) return kernel::reduce(shape.reduce_op(), shape.dtype, sum.span(), inputs);
  if (sum.data != own.data) std::ranges::copy(own.span(), sum.data);
}

}  // namespace

Task<void> reduce_along(Operation& op, const Request& request, pattern::Chain chain, Vector own, size_t begin,
                        uint64_t chunk) {
  if (chain.last() && !chain.first()) {
    co_await op.send(request.group.rank(chain.previous()), chunk, own.buffer());
    co_return;
  }
  const Shape& shape = request.shape;
  const Scratch room(chain.last() ? 0 : own.elements, own);
  const Vector coming = room.vector();
  const Vector sum = chain.first() ? request.out.part({begin, begin + own.elements}) : coming;
  if (!chain.last()) co_await op.receive(request.group.rank(chain.next()), chunk, coming.buffer());
  co_await op.work(touched(shape, chain.distance(), own.bytes()), [&] {
    if (own.phantom() || sum.phantom()) return;
    add(shape, sum, coming, own);
    if (chain.first() && shape.divisor > 1) kernel::divide(shape.dtype, sum.span(), shape.divisor);
  });
  if (!chain.first()) co_await op.send(request.group.rank(chain.previous()), chunk, sum.buffer());
}

Task<void> broadcast_along(Operation& op, const Request& request, pattern::Chain chain, Vector slice, uint64_t chunk) {
  if (!chain.first()) co_await op.receive(request.group.rank(chain.previous()), chunk, slice.buffer());
  if (!chain.last()) co_await op.send(request.group.rank(chain.next()), chunk, slice.buffer());
}

void charge_reduce_along(const Shape& shape, int root, size_t bytes, Ledger& ledger) {
  const int n = shape.members();
  const auto at = [&](int distance) { return (root + distance) % n; };
  if (n == 1) ledger.work(root, touched(shape, 0, bytes));
  for (int distance = n - 1; distance > 0; --distance) {
    ledger.round();
    ledger.send(at(distance), at(distance - 1), bytes);
    ledger.work(at(distance - 1), touched(shape, distance - 1, bytes));
  }
}

void charge_broadcast_along(const Shape& shape, int root, size_t bytes, Ledger& ledger) {
  const int n = shape.members();
  for (int distance = 0; distance + 1 < n; ++distance) {
    ledger.round();
    ledger.send((root + distance) % n, (root + distance + 1) % n, bytes);
  }
}

}  // namespace virga::collective
