#include "virga/data/sampler.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "virga/base/error.h"

namespace virga::data {
namespace {

// All samples of an epoch in global order: batch by batch, rank by rank.
std::vector<int64_t> deal(int64_t count, int64_t batch_size, int world, uint64_t seed, uint64_t epoch) {
  std::vector<DistributedSampler> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back(count, batch_size, rank, world, seed);
    ranks.back().set_epoch(epoch);
  }
  std::vector<int64_t> all;
  for (int64_t index = 0; index < ranks[0].batches_per_epoch(); ++index) {
    for (const DistributedSampler& sampler : ranks) {
      const std::span<const int64_t> batch = sampler.batch(index);
      EXPECT_EQ(static_cast<int64_t>(batch.size()), batch_size);
      all.insert(all.end(), batch.begin(), batch.end());
    }
  }
  return all;
}

TEST(DistributedSampler, EverySampleOnceWhereBatchesFill) {
  for (int world : {1, 2, 3, 4}) {
    std::vector<int64_t> all = deal(240, 5, world, 1, 3);
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(240);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << world << " ranks";
  }
}

TEST(DistributedSampler, DropsOnlyTheLastIncompleteGlobalBatch) {
  std::vector<int64_t> all = deal(103, 4, 3, 1, 0);
  EXPECT_EQ(all.size(), 96u);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  EXPECT_GE(all.front(), 0);
  EXPECT_LT(all.back(), 103);
}

TEST(DistributedSampler, GlobalBatchesDoNotDependOnTheNumberOfRanks) {
  EXPECT_EQ(deal(1000, 64, 1, 9, 2), deal(1000, 16, 4, 9, 2));
}

TEST(DistributedSampler, EpochsAndSeedsDifferAndReplay) {
  EXPECT_EQ(deal(1000, 10, 2, 7, 1), deal(1000, 10, 2, 7, 1));
  EXPECT_NE(deal(1000, 10, 2, 7, 1), deal(1000, 10, 2, 7, 2));
  EXPECT_NE(deal(1000, 10, 2, 7, 1), deal(1000, 10, 2, 8, 1));
}

// Each sample should come first about equally often: 6,000 epochs of 6 samples, 1,000 +- 5 standard
// deviations.
TEST(DistributedSampler, ShuffleIsUniform) {
  DistributedSampler sampler(6, 1, 0, 1, 5);
  std::vector<int> first(6);
  for (uint64_t epoch = 0; epoch < 6000; ++epoch) {
    sampler.set_epoch(epoch);
    ++first[static_cast<size_t>(sampler.batch(0)[0])];
  }
  for (int times : first) EXPECT_NEAR(times, 1000, 145);
}

TEST(DistributedSampler, WrongUse) {
  EXPECT_THROW(DistributedSampler(100, 0, 0, 1, 0), Error);
  EXPECT_THROW(DistributedSampler(100, 1, 4, 4, 0), Error);
  EXPECT_THROW(DistributedSampler(100, 1, -1, 4, 0), Error);
  EXPECT_THROW(DistributedSampler(100, 26, 0, 4, 0), Error);
  EXPECT_THROW(DistributedSampler(0, 1, 0, 1, 0), Error);
  const DistributedSampler sampler(100, 25, 0, 4, 0);
  EXPECT_EQ(sampler.batches_per_epoch(), 1);
  EXPECT_THROW(sampler.batch(1), Error);
  EXPECT_THROW(sampler.batch(-1), Error);
}

}  // namespace
}  // namespace virga::data
