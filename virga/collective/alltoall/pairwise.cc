// Alltoall in pairs: in step s every member sends to the one s ahead while it receives from the one s behind.
//
// Steps n-1, each in slices; bytes sent: all its parts but its own, (n-1)/n S where they are equal; memory none; no
// arithmetic. No two members send to the same one in a step, so links are shared evenly. A lost peer: the two members
// that are in a step with it fail, the others through the epoch's first error. Source: textbook; "pairwise exchange" in
// Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.

#include <algorithm>

#include "virga/collective/alltoall/alltoall.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> step(Operation& op, const Request& request, int distance) {
  const int n = request.group.size(), me = request.me(op);
  const int to = (me + distance) % n, from = (me - distance + n) % n;
  const auto number = [&request, distance](size_t i) {
    return chunk_number(request.phase, i, static_cast<unsigned>(distance));
  };
  const Vector out = request.in.part(alltoall_in(request.shape, me, to));
  const Vector in = request.out.part(alltoall_out(request.shape, from, me));
  const size_t slice = request.shape.slice_elements();
  return when_both(run_slices(op, out, slice,
                              [&op, &request, number, to](Vector part, size_t i) {
                                return op.send(request.group.rank(to), number(i), part.buffer());
                              }),
                   run_slices(op, in, slice,
                              [&op, &request, number, from](Vector part, size_t i) {
                                return op.receive(request.group.rank(from), number(i), part.buffer());
                              }),
                   &op.scope());
}

Task<void> run(Operation& op, Request request) {
  const int me = request.me(op);
  const Vector own = request.in.part(alltoall_in(request.shape, me, me));
  const Vector kept = request.out.part(alltoall_out(request.shape, me, me));
  co_await op.work(2 * own.bytes(), [&] {
    if (!request.phantom()) std::ranges::copy(own.span(), kept.data);
  });
  for (int distance = 1; distance < request.group.size(); ++distance) co_await step(op, request, distance);
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  ledger.phase();
  for (int member = 0; member < n; ++member) ledger.work(member, 2 * shape.part_bytes(member * n + member));
  for (int distance = 1; distance < n; ++distance) {
    ledger.phase();
    ledger.at_once(n, [&](int member) {
      const int to = (member + distance) % n;
      for_equal_slices(shape.part(member * n + to).size(), shape.slice_elements(), [&](size_t length, size_t count) {
        ledger.slice(count);
        ledger.send(member, to, length * size_of(shape.dtype));
      });
    });
  }
}

}  // namespace

const Algorithm alltoall_pairwise{OpKind::kAlltoall, "pairwise", run, charge};

}  // namespace virga::collective
