#include "virga/kernel/mstopk.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "virga/base/error.h"
#include "virga/base/random.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;

// The strict threshold that passes |x| >= bound.
int32_t at_least(float bound) { return std::bit_cast<int32_t>(bound) - 1; }

// The state of the bisection: the lowest bound known to pass at most k, the highest known to pass
// more.
struct Bracket {
  size_t few = 0, many;
  int32_t above_few = std::numeric_limits<int32_t>::max();  // nothing passes
  int32_t above_many = -1;                                  // everything passes
};

Bracket bisect(std::span<const float> x, size_t k, int iterations, float mean, float largest) {
  Bracket bracket{.many = x.size()};
  float low = 0, high = 1;  // of the ratio between mean and maximum
  for (int i = 0; i < iterations; ++i) {
    const float ratio = (low + high) / 2;
    const int32_t threshold = at_least(mean + ratio * (largest - mean));
    const size_t count = select_table().count_above(x.data(), threshold, x.size());
    if (count <= k) {
      high = ratio;
      if (count > bracket.few) bracket.few = count, bracket.above_few = threshold;
    } else {
      low = ratio;
      if (count < bracket.many) bracket.many = count, bracket.above_many = threshold;
    }
  }
  return bracket;
}

}  // namespace

void MsTopK::gather(std::span<const float> x, size_t expected, int32_t threshold) {
  indices_.resize(expected + kBlock);
  values_.resize(expected + kBlock);
  size_t count = 0;
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, x.size() - begin);
    count += select_table().gather(x.data() + begin, threshold, static_cast<uint32_t>(begin), size,
                                   indices_.data() + count, values_.data() + count);
  }
  indices_.resize(count);
  values_.resize(count);
}

// Keeps the `surely` candidates above the threshold and, of the others, a contiguous run that makes
// k.
void MsTopK::keep(size_t surely, size_t k, int32_t threshold, uint64_t seed) {
  const size_t others = indices_.size() - surely;
  const size_t run = k - surely;
  const size_t start = Random(seed).below(others - run + 1);
  size_t kept = 0, other = 0;
  for (size_t i = 0; i < indices_.size(); ++i) {
    const int32_t magnitude = static_cast<int32_t>(std::bit_cast<uint32_t>(values_[i]) & 0x7fffffffu);
    const bool sure = magnitude > threshold;
    const bool in_run = other >= start && other < start + run;
    other += !sure;
    if (!sure && !in_run) continue;
    indices_[kept] = indices_[i];
    values_[kept++] = values_[i];
  }
}

Selection MsTopK::select(std::span<const float> x, size_t k, int iterations, uint64_t seed) {
  require(x.size() <= (uint64_t{1} << 32), "top-k takes at most 2^32 elements, not {}", x.size());
  require(k <= x.size() && (k >= 1 || x.empty()), "top-k of {} elements can't give {}", x.size(), k);
  require(iterations >= 1, "MSTopK needs at least one iteration, not {}", iterations);
  if (k == 0) return {};
  const uint32_t largest = select_table().max_magnitude(x.data(), 1.0f, x.size());
  if (largest >= kInfinity) return {{}, {}, false};
  const double sum = select_table().sum_magnitudes(x.data(), x.size());
  const float mean = static_cast<float>(sum / static_cast<double>(x.size()));
  const Bracket bracket = bisect(x, k, iterations, mean, std::bit_cast<float>(largest));
  gather(x, bracket.many, bracket.above_many);
  keep(bracket.few, k, bracket.above_few, seed);
  return {{indices_.data(), k}, {values_.data(), k}, true};
}

}  // namespace virga::kernel
