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
// Method: a chunk's neighbour has much the same distribution, so what the last chunk's k-th magnitude was, less an
// eighth or so, lets a little more than k of the next one through; where that gives fewer than k, a threshold is found
// by bisection over the chunk. The candidates are cut to k by bisection, which ends as soon as a threshold parts
// exactly k. Reads: 1 from memory; a chunk that misses its threshold is read again from the cache (about ten times).
// Memory: 8 bytes * (chunk_topk_count + chunk), kept between calls. Not thread-safe: one object a thread.
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
  size_t gather(std::span<const float> chunk, size_t base, int32_t threshold);
  size_t candidates(std::span<const float> chunk, size_t base, size_t k);
  bool keep_best(size_t found, size_t k);

  std::vector<uint32_t> indices_;  // results of the chunks done: the first count_ entries; then candidates
  std::vector<float> values_;
  size_t count_ = 0;
  int32_t threshold_ = 0;  // what the next chunk's candidates exceed
  int32_t slack_ = 0;      // by how much that is below the last chunk's k-th magnitude
  size_t wanted_ = 0;      // how many candidates it should give
};

}  // namespace virga::kernel
