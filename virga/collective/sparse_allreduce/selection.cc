// What sparse allreduces share: the selection.

#include "virga/collective/sparse_allreduce/selection.h"

namespace virga::collective {
namespace {

size_t select_bytes(const Shape& shape) { return 6 * shape.bytes(); }

}  // namespace

codec::SparseFormat sparse_format(const Shape& shape) {
  return sparse_format(shape.elements, shape.density, shape.wire);
}

Task<void> select(Operation& op, const Request& request, net::Buffer message) {
  const Clock& clock = op.comm().loop().clock();
  co_await op.work(select_bytes(request.shape), [&] {
    if (request.phantom()) return;
    Selector& selector = *request.selector;
    const float scale = 1.0f / static_cast<float>(request.shape.divisor);
    selector.selected.begin = clock.now();
    selector.feedback.compress(request.in.floats(), scale, sparse_format(request.shape), {message.data, message.bytes});
    selector.selected.end = clock.now();
  });
}

void charge_select(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  for (int member = 0; member < shape.members(); ++member) ledger.work(member, select_bytes(shape));
}

}  // namespace virga::collective
