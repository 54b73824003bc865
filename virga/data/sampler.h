#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace virga::data {

// Deals the samples of an epoch out to the ranks. In epoch e all ranks draw the same permutation of
// the samples, a pure function of (seed, e); global batch b is its b-th run of world x batch_size
// samples, and rank r trains on the r-th batch_size of those. So over all ranks no sample comes
// twice in an epoch, every rank has the same number of batches, and the global batches depend on
// world x batch_size only, not on how many ranks share them.
//
// The last incomplete global batch is dropped: at most world x batch_size - 1 samples an epoch,
// other ones each time.
class DistributedSampler {
 public:
  // Throws kInvalidArgument where rank is outside 0..world-1, batch_size is below 1 or the samples
  // don't fill one global batch.
  DistributedSampler(int64_t count, int64_t batch_size, int rank, int world, uint64_t seed);

  int64_t batches_per_epoch() const { return batches_; }

  // Goes to the given epoch; a new sampler stands at epoch 0.
  void set_epoch(uint64_t epoch);

  // This rank's part of global batch `index` (0 <= index < batches_per_epoch()) of the current
  // epoch: batch_size sample numbers. Valid until set_epoch.
  std::span<const int64_t> batch(int64_t index) const;

 private:
  int64_t batch_size_;
  int rank_;
  int world_;
  uint64_t seed_;
  int64_t batches_;
  std::vector<int64_t> order_;
};

}  // namespace virga::data
