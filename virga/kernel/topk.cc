#include "virga/kernel/topk.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "virga/base/error.h"
#include "virga/base/random.h"
#include "virga/kernel/elementwise.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;
constexpr int32_t kEverything = -1;  // a threshold that every magnitude exceeds
constexpr size_t kLine = 16;         // floats a cache line: a sample takes whole lines
constexpr size_t kMaxLines = 4096;
constexpr size_t kMinSampled = 32768;           // below this many elements a sample costs more than it saves
constexpr uint64_t kSampleSeed = 0x7669726761;  // any constant: the sample is the same on every run

bool is_float(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

void check_sizes(size_t n, size_t k) {
  require(n <= (uint64_t{1} << 32), "top-k takes at most 2^32 elements, not {}", n);
  require(k <= n, "top-k of {} elements can't give {}", n, k);
  require(k >= 1 || n == 0, "top-k of {} elements needs k of at least 1", n);
}

// True if every gradient * scale, and every residual + gradient * scale, is finite. Sums are looked
// at only where the gradient is huge: a term below 2^103, half the spacing of the largest floats,
// can't push a finite residual past the range.
bool accumulates_finitely(std::span<const float> gradient, std::span<const float> residual, float scale) {
  constexpr uint32_t kCannotOverflow = (103u + 127u) << 23;
  for (size_t i = 0; i < gradient.size(); i += kBlock) {
    const size_t size = std::min(kBlock, gradient.size() - i);
    const uint32_t largest = select_table().max_magnitude(gradient.data() + i, scale, size);
    if (largest < kCannotOverflow) continue;
    if (largest >= kInfinity) return false;
    for (size_t j = i; j < i + size; ++j) {
      if (!std::isfinite(residual[j] + gradient[j] * scale)) return false;
    }
  }
  return true;
}

}  // namespace

// The limit is a function of (n, k) even where an earlier call has left a longer buffer: a small k
// is then cut early, which keeps the candidates in the cache.
void TopK::reserve(size_t n, size_t k) {
  limit_ = std::min(n, 2 * k + 2 * kBlock);
  if (indices_.size() >= limit_) return;
  indices_.resize(limit_);
  values_.resize(limit_);
}

// A threshold that should let a little more than k of n elements through, or kEverything where a
// sample doesn't pay. One cache line is drawn from each of equally long strata: whatever is
// clustered in a few regions (layers differ by orders of magnitude) then shows in its true
// proportion.
template <class ValueAt>
int32_t TopK::estimate_threshold(ValueAt value_at, size_t n, size_t k) {
  if (n < kMinSampled || k > n / 2) return kEverything;
  const size_t lines = std::min(kMaxLines, n / (16 * kLine));
  const size_t stratum = n / lines;
  sample_.resize(lines * kLine);
  for (size_t line = 0; line < lines; ++line) {
    const uint64_t draw = philox(kSampleSeed, 0, line / 4)[line % 4];
    const size_t begin = line * stratum + (draw * (stratum - kLine + 1) >> 32);
    for (size_t i = 0; i < kLine; ++i) sample_[line * kLine + i] = value_at(begin + i);
  }
  // Four standard deviations of the number of hits above its mean, so that too few is a rare event.
  const double expected = static_cast<double>(sample_.size()) * static_cast<double>(k) / static_cast<double>(n);
  const size_t rank = static_cast<size_t>(expected + 4 * std::sqrt(expected) + 4);
  if (rank >= sample_.size()) return kEverything;
  return kth_.find(sample_, rank).magnitude - 1;
}

// One pass over n elements, a block at a time. gather_block(begin, size, threshold, indices,
// values) appends the hits of a block and returns their number.
template <class GatherBlock>
void TopK::gather_all(GatherBlock gather_block, size_t n, size_t k, int32_t threshold) {
  count_ = 0;
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t size = std::min(kBlock, n - begin);
    if (count_ + size > limit_) threshold = keep_best(k);
    count_ += gather_block(begin, size, threshold, indices_.data() + count_, values_.data() + count_);
  }
}

void TopK::gather_from(std::span<const float> x, size_t k, int32_t threshold) {
  const auto gather = select_table().gather;
  const auto gather_block = [&](size_t begin, size_t size, int32_t above, uint32_t* indices, float* values) {
    return gather(x.data() + begin, above, static_cast<uint32_t>(begin), size, indices, values);
  };
  gather_all(gather_block, x.size(), k, threshold);
}

void TopK::accumulate_from(std::span<const float> gradient, std::span<float> residual, float scale, size_t k,
                           int32_t threshold) {
  const auto accumulate = select_table().accumulate_gather;
  const auto gather_block = [&](size_t begin, size_t size, int32_t above, uint32_t* indices, float* values) {
    return accumulate(residual.data() + begin, gradient.data() + begin, scale, above, static_cast<uint32_t>(begin),
                      size, indices, values);
  };
  gather_all(gather_block, gradient.size(), k, threshold);
}

// Cuts the candidates to the best k, still in order of index, and returns the k-th magnitude: later
// elements must exceed it, since an equal one has a higher index than all that are kept.
int32_t TopK::keep_best(size_t k) {
  const Kth kth = kth_.find({values_.data(), count_}, k);
  size_t equals_left = k - kth.larger;
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    const int32_t m = static_cast<int32_t>(std::bit_cast<uint32_t>(values_[i]) & 0x7fffffffu);
    const bool equal = m == kth.magnitude && equals_left > 0;
    indices_[kept] = indices_[i];
    values_[kept] = values_[i];
    equals_left -= equal;
    kept += equal || m > kth.magnitude;
  }
  count_ = kept;
  return kth.magnitude;
}

// NaN and Inf exceed every threshold and survive every cut, so one look at the candidates finds
// them.
bool TopK::candidates_finite() const { return select_table().max_magnitude(values_.data(), 1.0f, count_) < kInfinity; }

// Rounds the selected values to what the wire carries; the residual keeps the rest.
void TopK::settle(std::span<float> residual, DType value_dtype) {
  const std::span<float> sent(values_.data(), count_);
  round_to(value_dtype, sent);
  for (size_t i = 0; i < count_; ++i) residual[indices_[i]] -= sent[i];
}

Selection TopK::selected() const { return {{indices_.data(), count_}, {values_.data(), count_}, true}; }

Selection TopK::select(std::span<const float> x, size_t k) {
  check_sizes(x.size(), k);
  if (k == 0) return {};
  reserve(x.size(), k);
  gather_from(x, k, estimate_threshold([x](size_t i) { return x[i]; }, x.size(), k));
  if (!candidates_finite()) return {{}, {}, false};
  if (count_ < k) gather_from(x, k, kEverything);
  if (count_ > k) keep_best(k);
  return selected();
}

Selection TopK::error_feedback_select(std::span<const float> gradient, std::span<float> residual, float scale, size_t k,
                                      DType value_dtype) {
  const size_t n = gradient.size();
  check_sizes(n, k);
  require(residual.size() == n, "{} gradients but a residual of {} elements", n, residual.size());
  require(is_float(value_dtype), "values can't be sent as {}", to_string(value_dtype));
  if (k == 0) return {};
  if (!accumulates_finitely(gradient, residual, scale)) return {{}, {}, false};
  reserve(n, k);
  const auto sum_at = [&](size_t i) { return residual[i] + gradient[i] * scale; };
  accumulate_from(gradient, residual, scale, k, estimate_threshold(sum_at, n, k));
  if (!candidates_finite()) fail(ErrorCode::kNonFinite, "the residual was not finite before this call");
  if (count_ < k) gather_from(residual, k, kEverything);
  if (count_ > k) keep_best(k);
  settle(residual, value_dtype);
  return selected();
}

}  // namespace virga::kernel
