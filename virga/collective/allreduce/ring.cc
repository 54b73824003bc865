// Allreduce on a ring: reduce-scatter, then allgather, slice by slice.
//
// Every slice is a ring of its own over n segments, and kLanes slices are under way at once: while one is reduced, the
// others are on the wire. Steps 2(n-1) a slice; bytes sent 2(n-1)/n S (half of that with fp16 on the wire); memory one
// segment a lane (with fp16 the halves of one slice). Order of summation: segment i of a slice is added in the order of
// members i+1, i+2, ..., i (mod n). With fp32 the owner scales the sum; with fp16 every contribution is scaled first
// (so that a large job can't overflow), partial sums are rounded to fp16 at each hop and added in fp32, and the owner
// takes the rounded result too. A lost peer: its neighbours fail, and through the epoch's first error all others.
// Source: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.

#include "virga/collective/allreduce/ring.h"

#include <bit>
#include <cmath>
#include <vector>

#include "virga/kernel/elementwise.h"
#include "virga/pattern/ring.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

struct Slice {
  Operation& op;
  const Group& group;
  pattern::Ring ring;
  AllreduceOptions options;
  FloatVector data;
  size_t index;
  unsigned phase;

  FloatVector segment(int i) const { return data.part(pattern::shard(data.elements, ring.size, i)); }
  uint64_t chunk(unsigned which, int step) const { return chunk_number(phase + which, index, step); }

  // Sends to the next member while receiving from the previous one.
  Task<void> exchange(uint64_t chunk, net::ConstBuffer out, net::Buffer in) const {
    return when_both(op.send(group.rank(ring.next()), chunk, out), op.receive(group.rank(ring.previous()), chunk, in),
                     &op.scope());
  }
};

net::Buffer buffer(std::vector<float>& floats, FloatVector like) {
  return {like.phantom() ? nullptr : reinterpret_cast<std::byte*>(floats.data()), like.bytes()};
}

Task<void> ring_float(Slice slice) {
  std::vector<float> incoming(slice.data.phantom() ? 0 : slice.segment(0).elements);
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    const FloatVector sum = slice.segment(slice.ring.reduce_receive(step));
    co_await slice.exchange(slice.chunk(0, step), slice.segment(slice.ring.reduce_send(step)).buffer(),
                            buffer(incoming, sum));
    co_await slice.op.work(3 * sum.bytes(), [&] {
      if (!sum.phantom()) kernel::add(sum.span(), {incoming.data(), sum.elements});
    });
  }
  const FloatVector own = slice.segment(slice.ring.member);
  co_await slice.op.work(2 * own.bytes(), [&] {
    if (!own.phantom() && slice.options.scale != 1.0f) kernel::scale(own.span(), slice.options.scale);
  });
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    co_await slice.exchange(slice.chunk(1, step), slice.segment(slice.ring.gather_send(step)).buffer(),
                            slice.segment(slice.ring.gather_receive(step)).buffer());
  }
}

// The halves of a slice as they travel. Segments lie where they lie in the slice.
class HalfSlice {
 public:
  explicit HalfSlice(const Slice& slice) : slice_(slice), halves_(slice.data.phantom() ? 0 : slice.data.elements) {}

  net::Buffer buffer(int segment) { return {reinterpret_cast<std::byte*>(at(segment)), bytes(segment)}; }
  std::span<uint16_t> span(int segment) { return {at(segment), range(segment).size()}; }
  size_t bytes(int segment) const { return range(segment).size() * sizeof(uint16_t); }

 private:
  pattern::Range range(int segment) const { return pattern::shard(slice_.data.elements, slice_.ring.size, segment); }
  uint16_t* at(int segment) { return halves_.empty() ? nullptr : halves_.data() + range(segment).begin; }

  const Slice& slice_;
  std::vector<uint16_t> halves_;
};

Task<void> ring_half(Slice slice) {
  HalfSlice halves(slice);
  const bool phantom = slice.data.phantom();
  const auto pack = [&](int segment) {
    if (!phantom) kernel::pack_half(halves.span(segment), slice.segment(segment).span());
  };
  co_await slice.op.work(2 * slice.data.bytes(), [&] {
    if (!phantom && slice.options.scale != 1.0f) kernel::scale(slice.data.span(), slice.options.scale);
    pack(slice.ring.reduce_send(0));
  });
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    const int segment = slice.ring.reduce_receive(step);
    co_await slice.exchange(slice.chunk(0, step), halves.buffer(slice.ring.reduce_send(step)), halves.buffer(segment));
    co_await slice.op.work(3 * slice.segment(segment).bytes(), [&] {
      if (!phantom) kernel::add_half(slice.segment(segment).span(), halves.span(segment));
      pack(segment);
    });
  }
  if (slice.ring.size == 1) co_await slice.op.work(slice.data.bytes(), [&] { pack(0); });
  for (int step = 0; step + 1 < slice.ring.size; ++step) {
    co_await slice.exchange(slice.chunk(1, step), halves.buffer(slice.ring.gather_send(step)),
                            halves.buffer(slice.ring.gather_receive(step)));
  }
  co_await slice.op.work(2 * slice.data.bytes(), [&] {
    for (int i = 0; !phantom && i < slice.ring.size; ++i) {
      kernel::unpack_half(slice.segment(i).span(), halves.span(i));
    }
  });
}

}  // namespace

Task<void> ring_phase(Operation& op, unsigned phase, Group group, FloatVector data, AllreduceOptions options) {
  const pattern::Ring ring{group.size(), group.member(op.comm().rank())};
  const auto lane = [&](size_t i) {
    Slice slice{op, group, ring, options, data.part(pattern::slice(data.elements, i)), i, phase};
    return options.wire == DType::kFloat16 ? ring_half(slice) : ring_float(slice);
  };
  co_await run_lanes(pattern::slice_count(data.elements), kLanes, op.scope(), lane);
}

Task<void> allreduce_ring(Comm& comm, Group group, FloatVector data, AllreduceOptions options) {
  check(options);
  cluster::OpDescriptor descriptor{net::OpKind::kAllreduce, DType::kFloat32, data.elements};
  descriptor.options = fingerprint(options);
  return comm.perform(group, descriptor, [&](Operation& op) { return ring_phase(op, 0, group, data, options); });
}

void check(const AllreduceOptions& options) {
  require(options.wire == DType::kFloat32 || options.wire == DType::kFloat16,
          "an allreduce sends fp32 or fp16 between hosts, not {}", to_string(options.wire));
  require(std::isfinite(options.scale), "an allreduce can't scale by {}", options.scale);
}

uint64_t fingerprint(const AllreduceOptions& options) {
  return uint64_t{std::bit_cast<uint32_t>(options.scale)} << 8 | static_cast<uint8_t>(options.wire);
}

}  // namespace virga::collective
