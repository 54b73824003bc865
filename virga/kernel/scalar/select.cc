// The reference: what every vector path must equal bit for bit.
#include <algorithm>
#include <bit>
#include <cmath>

#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

bool exceeds(float x, int32_t threshold) { return static_cast<int32_t>(magnitude(x)) > threshold; }

uint32_t max_magnitude(const float* x, float factor, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, magnitude(x[i] * factor));
  return largest;
}

size_t count_above(const float* x, int32_t threshold, size_t n) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) count += exceeds(x[i], threshold);
  return count;
}

double sum_magnitudes(const float* x, size_t n) {
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kSumBlock) {
    const size_t size = std::min(kSumBlock, n - begin);
    float lanes[16] = {};
    for (size_t i = 0; i < size; ++i) lanes[i % 16] += std::fabs(x[begin + i]);
    for (float lane : lanes) total += lane;
  }
  return total;
}

size_t gather(const float* x, int32_t threshold, uint32_t base, size_t n, uint32_t* indices, float* values) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!exceeds(x[i], threshold)) continue;
    indices[count] = base + static_cast<uint32_t>(i);
    values[count++] = x[i];
  }
  return count;
}

size_t accumulate_gather(float* residual, const float* gradient, float factor, int32_t threshold, uint32_t base,
                         size_t n, uint32_t* indices, float* values) {
  for (size_t i = 0; i < n; ++i) residual[i] += gradient[i] * factor;
  return gather(residual, threshold, base, n, indices, values);
}

}  // namespace

const SelectTable kSelectScalar = {
    .max_magnitude = max_magnitude,
    .count_above = count_above,
    .sum_magnitudes = sum_magnitudes,
    .gather = gather,
    .accumulate_gather = accumulate_gather,
};

}  // namespace virga::kernel
