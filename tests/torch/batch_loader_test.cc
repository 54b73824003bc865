#include "virga/torch/batch_loader.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "virga/base/error.h"
#include "virga/base/random.h"

namespace virga::train {
namespace {

data::Dataset make_dataset(int64_t count, int64_t size) {
  data::Dataset dataset{count, size, size, {}, {}};
  Random random(1);
  for (int64_t i = 0; i < count * size * size; ++i) dataset.images.push_back(static_cast<uint8_t>(random.below(256)));
  for (int64_t i = 0; i < count; ++i) dataset.labels.push_back(static_cast<uint8_t>(random.below(10)));
  return dataset;
}

float normalised(const data::Dataset& dataset, int64_t item, int64_t row, int64_t col) {
  const uint8_t pixel = dataset.images[static_cast<size_t>((item * dataset.rows + row) * dataset.cols + col)];
  return (static_cast<float>(pixel) / 255.0f - 0.2860f) / 0.3530f;
}

// Bilinear scaling by definition: pixel centres stand at half-integers, edges repeat.
float scaled(const data::Dataset& dataset, int64_t item, int64_t size, int64_t row, int64_t col) {
  const auto at = [&](int64_t index) {
    const double ratio = static_cast<double>(dataset.rows) / static_cast<double>(size);
    return std::max(0.0, (static_cast<double>(index) + 0.5) * ratio - 0.5);
  };
  const double y = at(row), x = at(col);
  const auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
  const int64_t bottom = std::min(top + 1, dataset.rows - 1), right = std::min(left + 1, dataset.cols - 1);
  const double down = y - std::floor(y), across = x - std::floor(x);
  return static_cast<float>((1 - down) * (1 - across) * normalised(dataset, item, top, left) +
                            (1 - down) * across * normalised(dataset, item, top, right) +
                            down * (1 - across) * normalised(dataset, item, bottom, left) +
                            down * across * normalised(dataset, item, bottom, right));
}

TEST(BatchLoader, NormalisesAndPicks) {
  const data::Dataset dataset = make_dataset(5, 28);
  const std::vector<int64_t> indices = {4, 0, 4};
  const Batch batch = BatchLoader(dataset, {1, 28}).load(indices);
  ASSERT_EQ(batch.images.sizes(), (std::vector<int64_t>{3, 1, 28, 28}));
  ASSERT_EQ(batch.labels.sizes(), (std::vector<int64_t>{3}));
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t item = indices[static_cast<size_t>(i)];
    EXPECT_EQ(batch.labels[i].item<int64_t>(), dataset.labels[static_cast<size_t>(item)]);
    for (int64_t row = 0; row < 28; ++row) {
      for (int64_t col = 0; col < 28; ++col) {
        ASSERT_FLOAT_EQ(batch.images[i][0][row][col].item<float>(), normalised(dataset, item, row, col));
      }
    }
  }
}

TEST(BatchLoader, ScalesAndRepeatsOverChannels) {
  const data::Dataset dataset = make_dataset(2, 28);
  const Batch batch = BatchLoader(dataset, {3, 32}).load(std::vector<int64_t>{1});
  ASSERT_EQ(batch.images.sizes(), (std::vector<int64_t>{1, 3, 32, 32}));
  for (int64_t row = 0; row < 32; ++row) {
    for (int64_t col = 0; col < 32; ++col) {
      ASSERT_NEAR(batch.images[0][0][row][col].item<float>(), scaled(dataset, 1, 32, row, col), 1e-5);
    }
  }
  EXPECT_TRUE(torch::equal(batch.images[0][0], batch.images[0][1]));
  EXPECT_TRUE(torch::equal(batch.images[0][0], batch.images[0][2]));
}

TEST(BatchLoader, IndexOutsideTheDataset) {
  const data::Dataset dataset = make_dataset(2, 28);
  const BatchLoader loader(dataset, {1, 28});
  EXPECT_THROW(loader.load(std::vector<int64_t>{2}), Error);
  EXPECT_THROW(loader.load(std::vector<int64_t>{-1}), Error);
}

}  // namespace
}  // namespace virga::train
