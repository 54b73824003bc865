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

// Finds it exactly by radix: three histograms of 11, 10 and 10 bits, three reads of the list, no
// move. The object holds the histograms (32 KiB) so that a call allocates nothing.
class KthMagnitude {
 public:
  // 1 <= k <= values.size() <= 2^32.
  Kth find(std::span<const float> values, size_t k);

 private:
  static constexpr size_t kBins = 2048;
  static constexpr size_t kWays = 4;  // neighbours count into different tables, so equal ones don't wait

  void count(std::span<const float> values, uint32_t prefix, int prefix_shift, int shift, uint32_t mask);
  size_t bin_of(size_t rank, size_t* above) const;

  std::array<std::array<uint32_t, kBins>, kWays> tables_{};
};

}  // namespace virga::kernel
