// Gather by direct messages: every member sends its part to the root, all at once.
//
// Rounds 1, in slices; bytes sent: its part; the root receives (n-1)/n S where parts are equal; memory none; no
// arithmetic. A lost peer: the root fails with the epoch's first error, the others through it. Source: textbook, "flat
// tree".

#include <algorithm>

#include "virga/collective/algorithm.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> collect(Operation& op, const Request& request, int member) {
  return run_slices(op, request.out.part(request.shape.part(member)), request.shape.slice_elements(),
                    [&op, &request, member](Vector slice, size_t i) {
                      return op.receive(request.group.rank(member), chunk_number(request.phase, i, 0), slice.buffer());
                    });
}

Task<void> hand_in(Operation& op, const Request& request) {
  return run_slices(op, request.in, request.shape.slice_elements(), [&op, &request](Vector slice, size_t i) {
    return op.send(request.group.rank(request.shape.root), chunk_number(request.phase, i, 0), slice.buffer());
  });
}

Task<void> run(Operation& op, Request request) {
  const int me = request.me(op), root = request.shape.root, n = request.group.size();
  if (me != root) {
    co_await hand_in(op, request);
    co_return;
  }
  std::vector<Task<void>> parts;
  for (int distance = 1; distance < n; ++distance) parts.push_back(collect(op, request, (root + distance) % n));
  const Vector own = request.out.part(request.shape.part(root));
  parts.push_back(op.work(2 * own.bytes(), [&request, own] {
    if (!request.phantom()) std::ranges::copy(request.in.span(), own.data);
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
        ledger.send(member, shape.root, bytes);
      }
    });
  });
}

}  // namespace

const Algorithm gather_direct{OpKind::kGather, "direct", run, charge};

}  // namespace virga::collective
