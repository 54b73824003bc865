#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace virga::kernel {

// The k-th largest magnitude (bits without the sign) of a list, and how many are larger than it.
struct Kth {
  int32_t magnitude = 0;
  size_t larger = 0;
};

// Finds it exactly by radix: a histogram of 2,048 bins over the range of the magnitudes says in which bin it lies, a
// next one takes that bin for its range, three at most. Once a bin holds few they are collected and partitioned: where
// magnitudes lie within a few octaves, as those that exceed a threshold do, right after the first. The object holds the
// histogram (32 KiB) and the few (8 KiB), so that a call allocates nothing.
class KthMagnitude {
 public:
  // 1 <= k <= values.size() <= 2^32.
  Kth find(std::span<const float> values, size_t k);

 private:
  static constexpr size_t kBins = 2048;
  static constexpr size_t kWays = 4;    // neighbours count into different tables, so equal ones don't wait
  static constexpr size_t kFew = 2048;  // magnitudes that are partitioned

  // Magnitudes from `first` on, `last` included.
  struct Range {
    uint32_t first, last;
  };
  static Range range_of(std::span<const float> values);
  void count(std::span<const float> values, Range range, int shift);
  size_t bin_of(size_t rank, size_t* above, size_t* here) const;
  Kth partition(std::span<const float> values, Range range, size_t rank, size_t larger);

  std::array<std::array<uint32_t, kBins>, kWays> tables_{};
  std::array<uint32_t, kFew + kWays> few_{};
};

}  // namespace virga::kernel
