#include "virga/kernel/topk.h"

#include <algorithm>
#include <array>
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
constexpr size_t kPiece = 2048;       // candidates that are cut before those among them that are dropped are looked at
constexpr size_t kAhead = 16;         // lines of the sample that are fetched at once
constexpr size_t kMinSampled = 2048;  // below this many elements a sample costs more than it saves
constexpr uint64_t kSampleSeed = 0x7669726761;  // any constant: the sample is the same on every run

bool is_float(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

void check_sizes(size_t n, size_t k) {
  require(n <= (uint64_t{1} << 32), "top-k takes at most 2^32 elements, not {}", n);
  require(k <= n, "top-k of {} elements can't give {}", n, k);
  require(k >= 1 || n == 0, "top-k of {} elements needs k of at least 1", n);
}

// True if every gradient * scale, and every residual + gradient * scale, is finite. Sums are looked
// at only if a gradient is huge: a term below 2^103, half the spacing of the largest floats, can't
// push a finite residual past the range. So this reads the gradient only, and in a single call: the longer, the more
// bytes a second.
bool accumulates_finitely(std::span<const float> gradient, std::span<const float> residual, float scale) {
  constexpr uint32_t kCannotOverflow = (103u + 127u) << 23;
  const uint32_t largest = select_table().max_magnitude(gradient.data(), scale, gradient.size());
  if (largest < kCannotOverflow) return true;
  if (largest >= kInfinity) return false;
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (!std::isfinite(residual[i] + gradient[i] * scale)) return false;
  }
  return true;
}

// What is selected from: an array, or what a residual will be.
struct Plain {
  float at(size_t i) const { return x[i]; }
  void prefetch(size_t i) const { __builtin_prefetch(&x[i]); }
  std::span<const float> x;
};
struct Accumulated {
  float at(size_t i) const { return residual[i] + gradient[i] * scale; }
  void prefetch(size_t i) const {
    __builtin_prefetch(&residual[i]);
    __builtin_prefetch(&gradient[i]);
  }
  std::span<const float> residual, gradient;
  float scale;
};

// What becomes of candidates that are cut: nothing, or they return to the residual from which they were taken.
constexpr auto forget = [](std::span<const uint32_t>, std::span<const float>) {};
auto into(std::span<float> residual) {
  return [residual](std::span<const uint32_t> indices, std::span<const float> values) {
    for (uint32_t index : indices) __builtin_prefetch(&residual[index], 1);
    for (size_t i = 0; i < indices.size(); ++i) residual[indices[i]] = values[i];
  };
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
// proportion. The lines are all over memory, so each is asked for long before its turn.
template <class Input>
int32_t TopK::estimate_threshold(Input input, size_t n, size_t k) {
  if (n < kMinSampled || k > n / 2) return kEverything;
  const size_t lines = std::min(kMaxLines, n / (16 * kLine));
  const size_t stratum = n / lines;
  std::array<size_t, kMaxLines> begins;
  for (size_t line = 0; line < lines; line += 4) {
    const auto draws = philox(kSampleSeed, 0, line / 4);
    for (size_t j = 0; j < 4; ++j) {
      begins[line + j] = (line + j) * stratum + (uint64_t{draws[j]} * (stratum - kLine + 1) >> 32);
    }
  }
  sample_.resize(lines * kLine);
  for (size_t line = 0; line < lines; ++line) {
    input.prefetch(begins[std::min(line + kAhead, lines - 1)]);
    for (size_t i = 0; i < kLine; ++i) sample_[line * kLine + i] = input.at(begins[line] + i);
  }
  // Three standard deviations of the number of hits above its mean, so that too few is a rare event.
  const double expected = static_cast<double>(sample_.size()) * static_cast<double>(k) / static_cast<double>(n);
  const size_t rank = static_cast<size_t>(expected + 3 * std::sqrt(expected) + 4);
  if (rank >= sample_.size()) return kEverything;
  return kth_.find(sample_, rank).magnitude - 1;
}

// One pass over n elements, a block at a time. gather_block(begin, size, threshold, indices,
// values) appends the hits of a block and returns their number.
template <class GatherBlock, class Drop>
void TopK::gather_all(GatherBlock gather_block, Drop drop, size_t n, size_t k, int32_t threshold) {
  count_ = 0;
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t size = std::min(kBlock, n - begin);
    if (count_ + size > limit_) threshold = keep_best(k, drop);
    count_ += gather_block(begin, size, threshold, indices_.data() + count_, values_.data() + count_);
  }
}

void TopK::gather_from(std::span<const float> x, size_t k, int32_t threshold) {
  const auto gather = select_table().gather;
  const auto gather_block = [&](size_t begin, size_t size, int32_t above, uint32_t* indices, float* values) {
    return gather(x.data() + begin, above, static_cast<uint32_t>(begin), size, indices, values);
  };
  gather_all(gather_block, forget, x.size(), k, threshold);
}

// Candidates are taken from the residual at once, while their lines are in the cache. Those that are dropped later, a
// few, go back.
void TopK::accumulate_from(std::span<const float> gradient, std::span<float> residual, float scale, size_t k,
                           int32_t threshold, DType value_dtype) {
  const auto accumulate = select_table().accumulate_gather;
  const auto gather_block = [&](size_t begin, size_t size, int32_t above, uint32_t* indices, float* values) {
    const size_t found = accumulate(residual.data() + begin, gradient.data() + begin, scale, above,
                                    static_cast<uint32_t>(begin), size, indices, values);
    take(residual, {indices, found}, {values, found}, value_dtype);
    return found;
  };
  gather_all(gather_block, into(residual), gradient.size(), k, threshold);
}

// Cuts the candidates to the best k, still in order of index, and returns the k-th magnitude: later
// elements must exceed it, since an equal one has a higher index than all that are kept.
template <class Drop>
int32_t TopK::keep_best(size_t k, Drop drop) {
  const Kth kth = kth_.find({values_.data(), count_}, k);
  size_t equals_left = k - kth.larger;
  size_t kept = 0;
  for (size_t begin = 0; begin < count_; begin += kPiece) {  // of which no branch depends on a magnitude
    uint32_t dropped_indices[kPiece];
    float dropped_values[kPiece];
    size_t dropped = 0;
    for (size_t i = begin, end = std::min(begin + kPiece, count_); i < end; ++i) {
      const uint32_t index = indices_[i];
      const float value = values_[i];
      const int32_t m = static_cast<int32_t>(std::bit_cast<uint32_t>(value) & 0x7fffffffu);
      const bool equal = m == kth.magnitude && equals_left > 0;
      const bool keep = equal || m > kth.magnitude;
      indices_[kept] = dropped_indices[dropped] = index;
      values_[kept] = dropped_values[dropped] = value;
      equals_left -= equal;
      kept += keep;
      dropped += !keep;
    }
    drop(std::span<const uint32_t>(dropped_indices, dropped), std::span<const float>(dropped_values, dropped));
  }
  count_ = kept;
  return kth.magnitude;
}

// NaN and Inf exceed every threshold and survive every cut, so one look at the candidates finds
// them.
bool TopK::candidates_finite() const { return select_table().max_magnitude(values_.data(), 1.0f, count_) < kInfinity; }

// The residual keeps of each value what rounding it to what the wire carries leaves.
void TopK::take(std::span<float> residual, std::span<const uint32_t> indices, std::span<const float> values,
                DType value_dtype) {
  sent_.assign(values.begin(), values.end());
  round_to(value_dtype, sent_);
  for (size_t i = 0; i < indices.size(); ++i) residual[indices[i]] = values[i] - sent_[i];
}

Selection TopK::selected() const { return {{indices_.data(), count_}, {values_.data(), count_}, true}; }

Selection TopK::select(std::span<const float> x, size_t k) {
  check_sizes(x.size(), k);
  if (k == 0) return {};
  reserve(x.size(), k);
  gather_from(x, k, estimate_threshold(Plain{x}, x.size(), k));
  if (!candidates_finite()) return {{}, {}, false};
  if (count_ < k) gather_from(x, k, kEverything);
  if (count_ > k) keep_best(k, forget);
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
  const Accumulated sums = {residual, gradient, scale};
  accumulate_from(gradient, residual, scale, k, estimate_threshold(sums, n, k), value_dtype);
  if (!candidates_finite()) {
    into(residual)({indices_.data(), count_}, {values_.data(), count_});
    fail(ErrorCode::kNonFinite, "the residual was not finite before this call");
  }
  if (count_ >= k) {
    keep_best(k, into(residual));
  } else {
    into(residual)({indices_.data(), count_}, {values_.data(), count_});
    gather_from(residual, k, kEverything);
    keep_best(k, forget);
    take(residual, {indices_.data(), count_}, {values_.data(), count_}, value_dtype);
  }
  round_to(value_dtype, {values_.data(), count_});
  return selected();
}

}  // namespace virga::kernel
