// Allreduce by recursive doubling: few rounds, for vectors that are short.
//
//   1  where the number of members is no power of two, each of the members beyond the largest one folds: it sends its
//      vector to a neighbour, which adds it to its own
//   2  the others exchange the whole of what they have with the one at distance 1, 2, 4, ... and add
//   3  those that folded get the result
//
// Rounds log2 p, and two more where p, the largest power of two in n, is not n; bytes S in each of log2 p rounds, S
// more from either side of a fold; memory a slice a lane. Order of summation: of the two partial sums that meet, that
// of the lower members comes first on both sides, so both come to the same bits; halves are rounded at each step. A
// lost peer: those that wait for it, directly or through others. Source: Thakur, Rabenseifner, Gropp, "Optimization of
// collective communication operations in MPICH", 2005.

#include "virga/collective/algorithm.h"
#include "virga/collective/inputs.h"
#include "virga/collective/wire.h"
#include "virga/pattern/doubling.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

struct Slice {
  Operation& op;
  const Request& request;
  Vector data;
  size_t index;

  uint64_t chunk() const { return chunk_number(request.phase, index, 0); }
  Task<void> send(int to) const { return op.send(request.group.rank(to), chunk(), data.buffer()); }
  Task<void> receive(int from, Vector into) const {
    return op.receive(request.group.rank(from), chunk(), into.buffer());
  }
  // What `member` has sent, and what is here, the lower one's first.
  Task<void> add(int member, Vector theirs) const {
    return op.work(reduced_bytes(2, data.bytes()), [this, member, theirs] {
      if (data.phantom()) return;
      const std::span<const std::byte> lower = request.me(op) < member ? data.span() : theirs.span();
      const std::span<const std::byte> higher = request.me(op) < member ? theirs.span() : data.span();
      kernel::reduce(request.shape.reduce_op(), data.dtype, data.span(), std::vector{lower, higher});
    });
  }
  Task<void> divide() const {
    return op.work(divided_bytes(data.bytes()), [this] {
      if (!data.phantom()) kernel::divide(data.dtype, data.span(), request.shape.divisor);
    });
  }
};

Task<void> fold_slice(Slice slice, int into) {
  co_await slice.send(into);
  co_await slice.receive(into, slice.data);
}

Task<void> double_slice(Slice slice, pattern::Doubling doubling) {
  const int me = slice.request.me(slice.op);
  const Scratch theirs(slice.data.elements, slice.data);
  if (doubling.has_folded(me)) {
    co_await slice.receive(me + 1, theirs.vector());
    co_await slice.add(me + 1, theirs.vector());
  }
  for (int distance = 1; distance < doubling.taking_part(); distance *= 2) {
    const int partner = doubling.partner(me, distance);
    co_await when_both(slice.send(partner), slice.receive(partner, theirs.vector()), &slice.op.scope());
    co_await slice.add(partner, theirs.vector());
  }
  if (slice.request.shape.divisor > 1) co_await slice.divide();
  if (doubling.has_folded(me)) co_await slice.send(me + 1);
}

Task<void> run(Operation& op, Request request) {
  const int me = request.me(op);
  const pattern::Doubling doubling{request.group.size()};
  co_await run_slices(op, request.out, request.shape.slice_elements(), [&](Vector data, size_t i) {
    const Slice slice{op, request, data, i};
    return doubling.folds(me) ? fold_slice(slice, me - 1) : double_slice(slice, doubling);
  });
}

void charge_slice(const Shape& shape, size_t bytes, Ledger& ledger) {
  const pattern::Doubling doubling{shape.members()};
  if (doubling.folded() > 0) ledger.round();
  for (int i = 0; i < doubling.folded(); ++i) {
    ledger.send(2 * i + 1, 2 * i, bytes);
    ledger.work(2 * i, reduced_bytes(2, bytes));
  }
  for (int distance = 1; distance < doubling.taking_part(); distance *= 2) {
    ledger.round();
    for (int position = 0; position < doubling.taking_part(); ++position) {
      const int member = doubling.member_at(position);
      ledger.send(member, doubling.partner(member, distance), bytes);
      ledger.work(member, reduced_bytes(2, bytes));
    }
  }
  if (shape.divisor > 1) ledger.round();
  for (int position = 0; shape.divisor > 1 && position < doubling.taking_part(); ++position) {
    ledger.work(doubling.member_at(position), divided_bytes(bytes));
  }
  if (doubling.folded() > 0) ledger.round();
  for (int i = 0; i < doubling.folded(); ++i) ledger.send(2 * i, 2 * i + 1, bytes);
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    ledger.slice(count);
    charge_slice(shape, length * size_of(shape.dtype), ledger);
  });
}

}  // namespace

const Algorithm allreduce_recursive_doubling{OpKind::kAllreduce, "recursive_doubling", run, charge, fits_no_conversion};

}  // namespace virga::collective
