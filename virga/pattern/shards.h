#pragma once

#include <cstddef>
#include <cstdint>

// Who owns which part of a vector: pure index arithmetic, no messages.
namespace virga::pattern {

struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Shard `index` of `count` of a vector of `elements`: contiguous, in order, sizes differ by one at most, the first ones
// are the larger. Shards may be empty when there are fewer elements than shards.
inline Range shard(size_t elements, int count, int index) {
  const size_t base = elements / static_cast<size_t>(count);
  const size_t extra = elements % static_cast<size_t>(count);
  const size_t i = static_cast<size_t>(index);
  const size_t begin = base * i + (i < extra ? i : extra);
  return {begin, begin + base + (i < extra ? 1 : 0)};
}

// A vector is communicated in slices of this many elements, so that one is on the wire while another is reduced.
// 256 Ki floats are 1 MiB: a message of a 4-rank ring is then 256 KiB, 2 ms at 1 Gbit/s.
constexpr size_t kSliceElements = size_t{256} << 10;

inline size_t slice_count(size_t elements, size_t slice = kSliceElements) { return (elements + slice - 1) / slice; }

inline Range slice(size_t elements, size_t index, size_t length = kSliceElements) {
  const size_t begin = index * length;
  return {begin, begin + length < elements ? begin + length : elements};
}

}  // namespace virga::pattern
