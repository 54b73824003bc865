#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "virga/kernel/topk.h"

namespace virga::kernel {

// The results of a selection of k of every `chunk` of n elements: a last chunk that is shorter gives k, too, or all it
// has.
constexpr size_t chunk_topk_count(size_t n, size_t chunk, size_t k) { return n / chunk * k + std::min(n % chunk, k); }

// Exact top-k by magnitude of every chunk of an array: chunk c begins at element c * chunk, the last one may be
// shorter. Results are grouped by chunk and ascend by index within the whole array; among equal magnitudes at the
// border the lowest indices win. The result depends on the input alone, not on the CPU.
//
// Method: a chunk's neighbours have much the same distribution, so what the last chunk's k-th magnitude was, less a
// slack, lets a little more than k of the next ones through; the slack follows the number that came. Candidates are
// gathered from several chunks (32,768 elements) at once, since short passes leave memory idle. Where a chunk gives
// fewer than k, a threshold is found by bisection over the chunk. The candidates are cut to k by bisection, which ends
// as soon as a threshold parts exactly k. Reads: 1 from memory; a chunk that misses its threshold is read again from
// the cache (about ten times). Memory: 8 bytes * (chunk_topk_count + chunk + the larger of chunk and 32,768), kept
// between calls. Not thread-safe: one object a thread.
class ChunkTopK {
 public:
  // 1 <= k <= chunk, x.size() <= 2^32: kInvalidArgument otherwise. The spans of the result live until the next call.
  // With NaN or Inf anywhere nothing is selected, and the result says so.
  Selection select(std::span<const float> x, size_t chunk, size_t k);

 private:
  // A threshold, and how many magnitudes exceed it.
  struct Cut {
    int32_t above;
    size_t count;
  };
  static Cut raised(std::span<const float> values, Cut low, int32_t high, size_t k, size_t most);
  size_t gather(std::span<const float> part, size_t base, int32_t threshold, size_t end);
  bool keep_best(size_t first, size_t found, int32_t threshold, size_t k);
  bool select_part(std::span<const float> part, size_t base, size_t chunk, size_t k);

  std::vector<uint32_t> indices_, found_;  // results; candidates
  std::vector<float> values_, found_values_;
  size_t count_ = 0;       // results so far
  int32_t threshold_ = 0;  // what the next candidates exceed
  int32_t slack_ = 0;      // by how much that is below the last chunk's k-th magnitude
  size_t wanted_ = 0;      // how many candidates it should give
};

}  // namespace virga::kernel
