// Reduce-scatter on a ring: partial sums go from member to member, each adds its own.
//
// Parts may have any sizes. Slices of all parts with the same index are a ring of their own, and kLanes of them are
// under way at once: while one is reduced, the others are on the wire. Where a part has no such slice, its messages are
// left out.
// Rounds n-1 a slice; bytes S less the part of the next member, (n-1)/n S where parts are equal; memory two slices a
// lane, for what comes in and for what goes out, so that the rest of the vector stays as it is. Order of summation:
// part i is added in the order of members i+1, i+2, ..., i (mod n); halves are rounded at each addition. The owner
// divides the sum of an average. A lost peer: its neighbours fail, and through the epoch's first error all others.
// Source: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

#include "virga/pattern/ring.h"

#include "virga/collective/algorithm.h"
#include "virga/collective/exchange.h"
#include "virga/collective/inputs.h"
#include "virga/collective/part_slices.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

using pattern::PartSlices;
using pattern::Ring;

PartSlices slices_of(const Shape& shape) { return part_slices(shape, shape.slice_elements()); }

struct Slice {
  Operation& op;
  const Request& request;
  const PartSlices& slices;
  Ring ring;
  size_t index;

  const Shape& shape() const { return request.shape; }
  Vector part(int owner) const { return request.out.part(slices.at(owner, index)); }
  size_t longest() const {
    size_t most = 0;
    for (int owner = 0; owner < ring.size; ++owner) most = std::max(most, part(owner).elements);
    return most;
  }

  Task<void> pass_on(int step, Vector out, Vector in) const {
    const uint64_t chunk = chunk_number(request.phase, index, static_cast<unsigned>(step));
    return exchange(op, chunk, request.group.rank(ring.next()), out, request.group.rank(ring.previous()), in);
  }

  // sum += more, off the loop.
  Task<void> add(Vector sum, Vector more) const {
    return op.work(reduced_bytes(2, sum.bytes()), [shape = &shape(), sum, more] {
      if (!sum.phantom()) kernel::reduce(shape->reduce_op(), shape->dtype, sum.span(), more.span());
    });
  }
};

Task<void> reduce_slice(Slice slice) {
  const Scratch first(slice.longest(), slice.request.out), second(slice.longest(), slice.request.out);
  Vector out = slice.part(slice.ring.reduce_send(0));
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    const Vector mine = slice.part(slice.ring.reduce_receive(step));
    const Vector in = (step % 2 == 0 ? first : second).vector().part({0, mine.elements});
    co_await slice.pass_on(step, out, in);
    const bool last = step + 2 == slice.ring.size;
    const Vector sum = last ? mine : in, more = last ? in : mine;
    co_await slice.add(sum, more);
    out = in;
  }
  const Shape& shape = slice.shape();
  if (shape.divisor == 1) co_return;
  const Vector own = slice.part(slice.ring.member);
  co_await slice.op.work(divided_bytes(own.bytes()), [&] {
    if (!own.phantom()) kernel::divide(shape.dtype, own.span(), shape.divisor);
  });
}

Task<void> run(Operation& op, Request request) {
  const Ring ring{request.group.size(), request.me(op)};
  const PartSlices slices = slices_of(request.shape);
  co_await run_lanes(slices.count(), kLanes, op.scope(), [&](size_t i) {
    return reduce_slice({op, request, slices, ring, i});
  });
}

void charge_step(const Shape& shape, const PartSlices& slices, size_t index, int step, Ledger& ledger) {
  const int n = shape.members();
  ledger.round();
  for (int member = 0; member < n; ++member) {
    const Ring ring{n, member};
    const size_t bytes = slices.at(ring.reduce_send(step), index).size() * size_of(shape.dtype);
    ledger.send(member, ring.next(), bytes, bytes > 0 ? 1 : 0);
    ledger.work(member, reduced_bytes(2, slices.at(ring.reduce_receive(step), index).size() * size_of(shape.dtype)));
  }
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  const PartSlices slices = slices_of(shape);
  ledger.phase();
  slices.for_equal([&](size_t index, size_t count) {
    ledger.slice(count);
    for (int step = 0; step + 1 < n; ++step) charge_step(shape, slices, index, step, ledger);
    if (shape.divisor == 1) return;
    ledger.round();
    for (int member = 0; member < n; ++member) {
      ledger.work(member, divided_bytes(slices.at(member, index).size() * size_of(shape.dtype)));
    }
  });
}

}  // namespace

const Algorithm reduce_scatter_ring{OpKind::kReduceScatter, "ring", run, charge};

}  // namespace virga::collective
