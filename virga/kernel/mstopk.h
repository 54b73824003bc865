#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "virga/kernel/topk.h"

namespace virga::kernel {

// MSTopK: approximate top-k by bisection of a threshold between the mean and the maximum of |x|,
// exactly k results. Source: Shi et al., "Towards Scalable Distributed Training of Deep Learning on
// Public Cloud Clusters", MLSys 2021 (arXiv 2010.10458), rewritten from the description. It is here
// as the counterpart that benchmarks and tests measure TopK against; nothing else uses it.
//
// Reads: 2 + iterations + 1. What the bisection leaves undecided is filled by a run of neighbours
// that starts at random, so the result may miss some of the true top-k. Memory: 8 bytes * (the k2 -
// k elements beyond k at the last threshold, at worst all of x).
class MsTopK {
 public:
  // 1 <= k <= x.size() <= 2^32 or both 0, iterations >= 1: kInvalidArgument otherwise. `seed` sets
  // the start of the run. The spans of the result live until the next call; the indices ascend.
  Selection select(std::span<const float> x, size_t k, int iterations, uint64_t seed);

 private:
  void gather(std::span<const float> x, size_t expected, int32_t threshold);
  void keep(size_t surely, size_t k, int32_t threshold, uint64_t seed);

  std::vector<uint32_t> indices_;
  std::vector<float> values_;
};

}  // namespace virga::kernel
