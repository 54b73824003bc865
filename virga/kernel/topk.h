#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "virga/base/dtype.h"
#include "virga/kernel/kth_magnitude.h"

namespace virga::kernel {

// What a selection found. The spans belong to the TopK that made it and live until its next call.
struct Selection {
  std::span<const uint32_t> indices;  // ascending, unique
  std::span<const float> values;      // values[i] is what is sent for indices[i]
  bool finite = true;                 // false: NaN or Inf in the input, and nothing is selected
};

// Exact top-k by magnitude: exactly k results in ascending order of index; among equal magnitudes
// (0 and -0 are equal) at the border the lowest indices win. The result depends on the input alone,
// not on the CPU.
//
// Method: a stratified sample of the input gives a threshold that a little more than k elements
// should exceed; one streaming pass gathers those into a buffer of about 2k entries, and a radix
// selection on the buffer cuts it to k. Exact whatever the input: when the buffer fills, it is cut
// to its best k and the threshold rises to the k-th of them; if fewer than k come through, the pass
// is repeated without a threshold. Reads: 1, at worst 2; candidates are touched about four times.
// Memory: 8 bytes * (2k + 65536), at most 8 bytes an element, and with error feedback 4 bytes for each candidate of a
// block; 256 KiB for the sample. It is kept between calls, so that only a first call (or a larger one) allocates. Not
// thread-safe: one object a thread.
class TopK {
 public:
  // Selects from x. 1 <= k <= x.size() <= 2^32, or both 0: kInvalidArgument otherwise.
  Selection select(std::span<const float> x, size_t k);

  // Error feedback fused with the selection:
  //   residual += gradient * scale;  select the top k of residual;
  //   sent = selected values rounded to value_dtype (see round_to);  residual[selected] -= sent.
  // So sent + residual is exactly what the residual was after the first line (unless fp16 or bf16
  // saturates, where the difference is rounded once). If a product or a sum is NaN or Inf, the
  // selection says so and the residual is left exactly as it was. The residual must be finite
  // before: kNonFinite if it isn't. Passes: read gradient; read gradient, read and write residual,
  // from which candidates are taken block by block; touch again those that are not selected.
  Selection error_feedback_select(std::span<const float> gradient, std::span<float> residual, float scale, size_t k,
                                  DType value_dtype);

 private:
  template <class Input>
  int32_t estimate_threshold(Input input, size_t n, size_t k);
  template <class GatherBlock, class Drop>
  void gather_all(GatherBlock gather_block, Drop drop, size_t n, size_t k, int32_t threshold);
  void gather_from(std::span<const float> x, size_t k, int32_t threshold);
  void accumulate_from(std::span<const float> gradient, std::span<float> residual, float scale, size_t k,
                       int32_t threshold, DType value_dtype);
  void reserve(size_t n, size_t k);
  template <class Drop>
  int32_t keep_best(size_t k, Drop drop);
  bool candidates_finite() const;
  void take(std::span<float> residual, std::span<const uint32_t> indices, std::span<const float> values,
            DType value_dtype);
  Selection selected() const;

  std::vector<uint32_t> indices_;  // candidates: the first count_ entries
  std::vector<float> values_;
  size_t count_ = 0;
  size_t limit_ = 0;  // the candidates are cut to k before they would be more than this
  std::vector<float> sample_;
  std::vector<float> sent_;  // candidates of a block, rounded to what the wire carries
  KthMagnitude kth_;
};

}  // namespace virga::kernel
