#include "virga/kernel/kth_magnitude.h"

#include <bit>

namespace virga::kernel {
namespace {

uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

}  // namespace

// Counts digit (m >> shift) & mask of every magnitude m whose leading bits m >> prefix_shift are
// `prefix`.
void KthMagnitude::count(std::span<const float> values, uint32_t prefix, int prefix_shift, int shift, uint32_t mask) {
  for (auto& table : tables_) table.fill(0);
  const auto add = [&](size_t way, float value) {
    const uint32_t m = magnitude(value);
    tables_[way][(m >> shift) & mask] += (m >> prefix_shift) == prefix;
  };
  size_t i = 0;
  for (; i + kWays <= values.size(); i += kWays) {
    for (size_t way = 0; way < kWays; ++way) add(way, values[i + way]);
  }
  for (; i < values.size(); ++i) add(0, values[i]);
}

// The bin that holds the element of this rank (1 = largest); adds to `above` how many lie in higher
// bins.
size_t KthMagnitude::bin_of(size_t rank, size_t* above) const {
  size_t seen = 0;
  for (size_t bin = kBins; bin-- > 0;) {
    size_t here = 0;
    for (const auto& table : tables_) here += table[bin];
    if (seen + here >= rank) {
      *above += seen;
      return bin;
    }
    seen += here;
  }
  return 0;  // not reached: rank is at most the number of elements counted
}

Kth KthMagnitude::find(std::span<const float> values, size_t k) {
  size_t larger = 0;
  count(values, 0, 31, 20, 2047);
  uint32_t prefix = static_cast<uint32_t>(bin_of(k, &larger));
  count(values, prefix, 20, 10, 1023);
  prefix = prefix << 10 | static_cast<uint32_t>(bin_of(k - larger, &larger));
  count(values, prefix, 10, 0, 1023);
  prefix = prefix << 10 | static_cast<uint32_t>(bin_of(k - larger, &larger));
  return {static_cast<int32_t>(prefix), larger};
}

}  // namespace virga::kernel
