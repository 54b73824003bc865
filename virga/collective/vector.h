#pragma once

#include <span>

#include "virga/cluster/comm.h"
#include "virga/net/transport.h"
#include "virga/pattern/shards.h"

namespace virga::collective {

using cluster::Comm;
using cluster::Group;
using cluster::Operation;

// The floats that a collective works on in place. A phantom vector has elements but no data (see net::Buffer).
struct FloatVector {
  float* data = nullptr;
  size_t elements = 0;

  FloatVector() = default;
  FloatVector(float* data, size_t elements) : data(data), elements(elements) {}
  FloatVector(std::span<float> span) : data(span.data()), elements(span.size()) {}  // NOLINT: spans are vectors

  bool phantom() const { return data == nullptr && elements > 0; }
  size_t bytes() const { return elements * sizeof(float); }
  std::span<float> span() const { return {data, elements}; }
  FloatVector part(pattern::Range range) const {
    return {data == nullptr ? nullptr : data + range.begin, range.size()};
  }
  net::Buffer buffer() const { return {reinterpret_cast<std::byte*>(data), bytes()}; }
};

// Message numbers of one operation: which phase of the algorithm, which slice, which step. Each algorithm uses them as
// it likes, as long as no two messages between the same two ranks share one.
inline uint64_t chunk_number(unsigned phase, size_t slice, unsigned step) {
  return uint64_t{phase} << 56 | uint64_t{slice} << 16 | step;
}

// Runs `lane(i)` for i in [0, count) with at most `width` at once, in order of i: how slices overlap. Tasks that
// have not begun when one fails never begin.
Task<void> run_lanes(size_t count, size_t width, CancelScope& scope, std::function<Task<void>(size_t)> lane);

// Calls body(elements, how often) for the slices of a vector: the whole ones together, then what is left.
template <class Body>
void for_equal_slices(size_t elements, size_t slice, Body body) {
  if (elements >= slice) body(slice, elements / slice);
  if (elements % slice > 0) body(elements % slice, size_t{1});
}

constexpr size_t kLanes = 4;  // slices of one operation that are under way together

}  // namespace virga::collective
