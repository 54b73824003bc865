// Reduce-scatter by direct exchange: every member sends each part to the one that owns it, which reduces.
//
// Rounds 1, in slices; bytes sent (n-1)/n S per member when parts are equal; memory n-1 slices a lane. Order of
// summation: member 0, 1, ..., n-1, in one pass over all of them, in fp32 for halves. A lost peer: the members that
// wait for it fail with the epoch's first error. Made for ranks of one host, where every pair has its own memory path;
// between hosts the ring is kinder to the links.

#include "virga/collective/algorithm.h"
#include "virga/collective/inputs.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

size_t work_bytes(const Shape& shape, size_t length) {
  return static_cast<size_t>(shape.members() + 1) * length * size_of(shape.dtype);
}

Task<void> collect_slice(Operation& op, const Request& request, Vector own, size_t index) {
  const Shape& shape = request.shape;
  Inputs inputs(own);  // in the order of members
  std::vector<Task<void>> receives;
  for (int member = 0; member < request.group.size(); ++member) {
    if (member == request.me(op)) {
      inputs.add_own();
      continue;
    }
    receives.push_back(
        op.receive(request.group.rank(member), chunk_number(request.phase, index, 0), inputs.add_incoming().buffer()));
  }
  co_await when_all(std::move(receives), &op.scope());
  co_await op.work(work_bytes(shape, own.elements), [&] {
    inputs.reduce_into(own, shape);
    if (!own.phantom() && shape.divisor > 1) kernel::divide(shape.dtype, own.span(), shape.divisor);
  });
}

Task<void> hand_out(Operation& op, const Request& request, int owner) {
  return run_slices(op, request.in.part(request.shape.part(owner)), request.shape.slice_elements(),
                    [&op, &request, owner](Vector slice, size_t i) {
                      return op.send(request.group.rank(owner), chunk_number(request.phase, i, 0), slice.buffer());
                    });
}

Task<void> collect(Operation& op, const Request& request) {
  return run_slices(op, request.out.part(request.shape.part(request.me(op))), request.shape.slice_elements(),
                    [&op, &request](Vector slice, size_t i) { return collect_slice(op, request, slice, i); });
}

Task<void> run(Operation& op, Request request) {
  const int n = request.group.size(), me = request.me(op);
  std::vector<Task<void>> parts;
  for (int distance = 1; distance < n; ++distance) parts.push_back(hand_out(op, request, (me + distance) % n));
  parts.push_back(collect(op, request));
  co_await when_all(std::move(parts), &op.scope());
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  ledger.at_once(shape.members(), [&](int owner) {
    for_equal_slices(shape.part(owner).size(), shape.slice_elements(), [&](size_t length, size_t count) {
      ledger.slice(count);
      for (int other = 0; other < shape.members(); ++other) {
        if (other != owner) ledger.send(other, owner, length * size_of(shape.dtype));
      }
      ledger.work(owner, work_bytes(shape, length));
    });
  });
}

}  // namespace

const Algorithm reduce_scatter_direct{OpKind::kReduceScatter, "direct", run, charge};

}  // namespace virga::collective
