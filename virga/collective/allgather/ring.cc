// Allgather on a ring: every member passes on the part that came last.
//
// Parts may have any sizes. Slices of all parts with the same index are a ring of their own, kLanes of them under way
// at once. Where a part has no such slice, its messages are left out.
// Rounds n-1 a slice; bytes S less the part of the next member, (n-1)/n S where parts are equal; memory none; no
// arithmetic. A lost peer: those behind it wait until the epoch fails or the deadline passes. Source: the bucket
// algorithm, textbook; Chan et al., "Collective communication: theory, practice, and experience", 2007.

#include "virga/pattern/ring.h"

#include "virga/collective/algorithm.h"
#include "virga/collective/exchange.h"
#include "virga/collective/part_slices.h"

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

  Task<void> pass_on(int step) const {
    const Vector out = request.out.part(slices.at(ring.gather_send(step), index));
    const Vector in = request.out.part(slices.at(ring.gather_receive(step), index));
    const uint64_t chunk = chunk_number(request.phase, index, static_cast<unsigned>(step));
    return exchange(op, chunk, request.group.rank(ring.next()), out, request.group.rank(ring.previous()), in);
  }
};

Task<void> gather_slice(Slice slice) {
  for (int step = 0; step + 1 < slice.ring.size; ++step) co_await slice.pass_on(step);
}

Task<void> run(Operation& op, Request request) {
  const Ring ring{request.group.size(), request.me(op)};
  const PartSlices slices = slices_of(request.shape);
  co_await run_lanes(slices.count(), kLanes, op.scope(), [&](size_t i) {
    return gather_slice({op, request, slices, ring, i});
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  const PartSlices slices = slices_of(shape);
  ledger.phase();
  slices.for_equal([&](size_t index, size_t count) {
    ledger.slice(count);
    for (int step = 0; step + 1 < n; ++step) {
      ledger.round();
      for (int member = 0; member < n; ++member) {
        const Ring ring{n, member};
        const size_t bytes = slices.at(ring.gather_send(step), index).size() * size_of(shape.dtype);
        ledger.send(member, ring.next(), bytes, bytes > 0 ? 1 : 0);
      }
    }
  });
}

}  // namespace

const Algorithm allgather_ring{OpKind::kAllgather, "ring", run, charge};

}  // namespace virga::collective
