// Allreduce on a ring: reduce-scatter, then allgather, slice by slice.
//
// Every slice is a ring of its own over n segments, and kLanes slices are under way at once: while one is reduced, the
// others are on the wire. Steps 2(n-1) a slice; bytes sent 2(n-1)/n S (half of that with fp16 on the wire); memory one
// segment a lane (with fp16 the halves of one slice). Order of summation: segment i of a slice is added in the order of
// members i+1, i+2, ..., i (mod n). The owner divides the sum of an average. With fp32 that travels as fp16 or bf16
// every contribution to an average is multiplied by 1/n first (so that a large job can't overflow), partial sums are
// rounded at each hop and added in fp32, and the owner takes the rounded result too. Vectors of halves are rounded at
// each hop as well. A lost peer: its neighbours fail, and through the epoch's first error all others.
// Source: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

#include "virga/pattern/ring.h"

#include "virga/collective/algorithm.h"
#include "virga/collective/exchange.h"
#include "virga/collective/inputs.h"
#include "virga/collective/wire.h"
#include "virga/kernel/elementwise.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kReduce = 0, kGather = 1 };

struct Slice {
  Operation& op;
  const Request& request;
  pattern::Ring ring;
  Vector data;
  size_t index;

  const Shape& shape() const { return request.shape; }
  pattern::Range range(int i) const { return pattern::shard(data.elements, ring.size, i); }
  Vector segment(int i) const { return data.part(range(i)); }

  Rank next() const { return request.group.rank(ring.next()); }
  Rank previous() const { return request.group.rank(ring.previous()); }
  uint64_t chunk(Phase phase, int step) const {
    return chunk_number(request.phase + phase, index, static_cast<unsigned>(step));
  }
  Task<void> pass_on(Phase phase, int step, Vector out, Vector in) const {
    return exchange(op, chunk(phase, step), next(), out, previous(), in);
  }
};

Task<void> ring_plain(Slice slice) {
  const Scratch room(slice.segment(0).elements, slice.data);
  const Shape& shape = slice.shape();
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    const Vector sum = slice.segment(slice.ring.reduce_receive(step));
    const Vector out = slice.segment(slice.ring.reduce_send(step));
    co_await exchange_and_reduce(slice.op, slice.chunk(kReduce, step), slice.next(), out, slice.previous(), sum,
                                 room.vector(), shape);
  }
  const Vector own = slice.segment(slice.ring.member);
  if (shape.divisor > 1) {
    co_await slice.op.work(divided_bytes(own.bytes()), [&] {
      if (!own.phantom()) kernel::divide(shape.dtype, own.span(), shape.divisor);
    });
  }
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    co_await slice.pass_on(kGather, step, slice.segment(slice.ring.gather_send(step)),
                           slice.segment(slice.ring.gather_receive(step)));
  }
}

// fp32 that travels as 16 bits. Segments of halves lie where they lie in the slice.
Task<void> ring_half(Slice slice) {
  const HalfWire wire(slice.shape().wire);
  const Scratch memory(slice.data.elements, wire.dtype, slice.data);
  const auto halves = [&](int i) { return memory.vector().part(slice.range(i)); };
  const bool phantom = slice.data.phantom();
  co_await slice.op.work(2 * slice.data.bytes(), [&] {
    if (phantom) return;
    const int divisor = slice.shape().divisor;
    if (divisor > 1) kernel::scale(slice.data.floats(), 1.0f / static_cast<float>(divisor));
    wire.pack(halves(slice.ring.reduce_send(0)), slice.segment(slice.ring.reduce_send(0)));
  });
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    const int i = slice.ring.reduce_receive(step);
    co_await slice.pass_on(kReduce, step, halves(slice.ring.reduce_send(step)), halves(i));
    co_await slice.op.work(reduced_bytes(2, slice.segment(i).bytes()), [&] {
      if (phantom) return;
      wire.add(slice.segment(i), halves(i));
      wire.pack(halves(i), slice.segment(i));
    });
  }
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    co_await slice.pass_on(kGather, step, halves(slice.ring.gather_send(step)),
                           halves(slice.ring.gather_receive(step)));
  }
  co_await slice.op.work(2 * slice.data.bytes(), [&] {
    if (!phantom) wire.unpack(slice.data, memory.vector());
  });
}

Task<void> run(Operation& op, Request request) {
  const pattern::Ring ring{request.group.size(), request.me(op)};
  co_await run_slices(op, request.out, request.shape.slice_elements(), [&](Vector data, size_t i) {
    const Slice slice{op, request, ring, data, i};
    return request.shape.converts() ? ring_half(slice) : ring_plain(slice);
  });
}

// Round `step` of one of the two phases: each member passes one segment on.
void charge_step(const Shape& shape, size_t length, int step, Phase phase, Ledger& ledger) {
  const int n = shape.members();
  const auto elements = [&](int segment) { return pattern::shard(length, n, segment).size(); };
  ledger.round();
  for (int member = 0; member < n; ++member) {
    const pattern::Ring ring{n, member};
    const int out = phase == kReduce ? ring.reduce_send(step) : ring.gather_send(step);
    ledger.send(member, ring.next(), elements(out) * size_of(shape.wire), elements(out) > 0 ? 1 : 0);
    if (phase == kReduce)
      ledger.work(member, reduced_bytes(2, elements(ring.reduce_receive(step)) * size_of(shape.dtype)));
  }
}

void charge_work(const Shape& shape, size_t bytes, Ledger& ledger) {
  ledger.round();
  for (int member = 0; member < shape.members(); ++member) ledger.work(member, bytes);
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    const size_t bytes = length * size_of(shape.dtype);
    ledger.slice(count);
    if (shape.converts()) charge_work(shape, 2 * bytes, ledger);
    for (int step = 0; step + 1 < n; ++step) charge_step(shape, length, step, kReduce, ledger);
    if (shape.divisor > 1 && !shape.converts()) charge_work(shape, 2 * bytes / static_cast<size_t>(n), ledger);
    for (int step = 0; step + 1 < n; ++step) charge_step(shape, length, step, kGather, ledger);
    if (shape.converts()) charge_work(shape, 2 * bytes, ledger);
  });
}

}  // namespace

const Algorithm allreduce_ring{OpKind::kAllreduce, "ring", run, charge, fits_half_wire};

}  // namespace virga::collective
