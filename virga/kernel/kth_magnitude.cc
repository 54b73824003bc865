#include "virga/kernel/kth_magnitude.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace virga::kernel {
namespace {

uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

}  // namespace

KthMagnitude::Range KthMagnitude::range_of(std::span<const float> values) {
  int32_t first = static_cast<int32_t>(magnitude(values[0])), last = first;  // signed: every machine compares such
  for (float value : values) {
    const int32_t m = static_cast<int32_t>(magnitude(value));
    first = std::min(first, m);
    last = std::max(last, m);
  }
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

// Counts bin (m - range.first) >> shift of every magnitude m within the range.
void KthMagnitude::count(std::span<const float> values, Range range, int shift) {
  for (auto& table : tables_) table.fill(0);
  const uint32_t length = range.last - range.first;
  const auto add = [&](size_t way, float value) {
    const uint32_t offset = magnitude(value) - range.first;  // what lies below wraps past the end
    tables_[way][(offset >> shift) % kBins] += offset <= length;
  };
  size_t i = 0;
  for (; i + kWays <= values.size(); i += kWays) {
    for (size_t way = 0; way < kWays; ++way) add(way, values[i + way]);
  }
  for (; i < values.size(); ++i) add(0, values[i]);
}

// The bin that holds the element of this rank (1 = largest), and how many it holds; adds to `above` how many lie in
// higher bins.
size_t KthMagnitude::bin_of(size_t rank, size_t* above, size_t* here) const {
  size_t seen = 0;
  for (size_t bin = kBins; bin-- > 0;) {
    *here = 0;
    for (const auto& table : tables_) *here += table[bin];
    if (seen + *here >= rank) {
      *above += seen;
      return bin;
    }
    seen += *here;
  }
  return 0;  // not reached: rank is at most the number of elements counted
}

// The element of this rank among those within the range, of which there are at most kFew.
Kth KthMagnitude::partition(std::span<const float> values, Range range, size_t rank, size_t larger) {
  const uint32_t length = range.last - range.first;
  size_t found = 0;
  const auto add = [&](float value) {
    few_[found] = magnitude(value);
    found += few_[found] - range.first <= length;
  };
  constexpr size_t kGroup = 32;  // most of which hold none
  size_t i = 0;
  for (; i + kGroup <= values.size(); i += kGroup) {
    uint32_t any = 0;
    for (size_t j = 0; j < kGroup; ++j) any |= magnitude(values[i + j]) - range.first <= length;
    if (any == 0) continue;
    for (size_t j = 0; j < kGroup; ++j) add(values[i + j]);
  }
  for (; i < values.size(); ++i) add(values[i]);
  const auto begin = few_.begin(), kth = begin + static_cast<ptrdiff_t>(rank - 1);
  std::nth_element(begin, kth, begin + static_cast<ptrdiff_t>(found), std::greater<>());
  const uint32_t m = *kth;
  larger += static_cast<size_t>(std::count_if(begin, kth, [m](uint32_t other) { return other > m; }));
  return {static_cast<int32_t>(m), larger};
}

Kth KthMagnitude::find(std::span<const float> values, size_t k) {
  if (values.size() <= kFew) return partition(values, {0, ~uint32_t{0}}, k, 0);
  size_t larger = 0;
  Range range = range_of(values);
  for (;;) {
    const int shift = std::bit_width((range.last - range.first) / kBins);
    count(values, range, shift);
    size_t here = 0;
    const uint32_t bin = static_cast<uint32_t>(bin_of(k - larger, &larger, &here));
    range.first += bin << shift;
    range.last = std::min(range.last, range.first + (1u << shift) - 1);
    if (shift == 0) return {static_cast<int32_t>(range.first), larger};
    if (here <= kFew) return partition(values, range, k - larger, larger);
  }
}

}  // namespace virga::kernel
