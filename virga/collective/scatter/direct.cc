// Scatter by direct messages: the root sends every member its part, all at once, the nearest first.
//
// Rounds 1, in slices; bytes sent by the root: all parts but its own, (n-1)/n S where they are equal; memory none; no
// arithmetic. A lost peer: those that wait for the root, or the root that sends to it, fail with the epoch's first
// error. Source: textbook, "flat tree".

#include <algorithm>

#include "virga/collective/algorithm.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> hand_out(Operation& op, const Request& request, int member) {
  return run_slices(op, request.in.part(request.shape.part(member)), request.shape.slice_elements(),
                    [&op, &request, member](Vector slice, size_t i) {
                      return op.send(request.group.rank(member), chunk_number(request.phase, i, 0), slice.buffer());
                    });
}

Task<void> fetch(Operation& op, const Request& request) {
  return run_slices(op, request.out, request.shape.slice_elements(), [&op, &request](Vector slice, size_t i) {
    return op.receive(request.group.rank(request.shape.root), chunk_number(request.phase, i, 0), slice.buffer());
  });
}

Task<void> run(Operation& op, Request request) {
  const int me = request.me(op), root = request.shape.root, n = request.group.size();
  if (me != root) {
    co_await fetch(op, request);
    co_return;
  }
  std::vector<Task<void>> parts;
  for (int distance = 1; distance < n; ++distance) parts.push_back(hand_out(op, request, (root + distance) % n));
  const Vector own = request.in.part(request.shape.part(root));
  parts.push_back(op.work(2 * own.bytes(), [&request, own] {
    if (!request.phantom()) std::ranges::copy(own.span(), request.out.data);
  }));
  co_await when_all(std::move(parts), &op.scope());
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  ledger.at_once(shape.members(), [&](int member) {
    for_equal_slices(shape.part(member).size(), shape.slice_elements(), [&](size_t length, size_t count) {
      const size_t bytes = length * size_of(shape.dtype);
      ledger.slice(count);
      if (member == shape.root) {
        ledger.work(member, 2 * bytes);
      } else {
        ledger.send(shape.root, member, bytes);
      }
    });
  });
}

}  // namespace

const Algorithm scatter_direct{OpKind::kScatter, "direct", run, charge};

}  // namespace virga::collective
