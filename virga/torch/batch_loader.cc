#include "virga/torch/batch_loader.h"

#include <array>
#include <torch/torch.h>

#include "virga/base/error.h"

namespace virga::train {
namespace {

constexpr float kMean = 0.2860f,
                kDeviation = 0.3530f;  // of Fashion-MNIST's training pixels in 0..1

constexpr std::array<float, 256> make_normalised() {
  std::array<float, 256> table{};
  for (size_t pixel = 0; pixel < table.size(); ++pixel) {
    table[pixel] = (static_cast<float>(pixel) / 255.0f - kMean) / kDeviation;
  }
  return table;
}
constexpr std::array<float, 256> kNormalised = make_normalised();

}  // namespace

Batch BatchLoader::load(std::span<const int64_t> indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t pixels = dataset_->rows * dataset_->cols;
  Batch batch{torch::empty({count, 1, dataset_->rows, dataset_->cols}), torch::empty({count}, torch::kInt64)};
  auto* image = batch.images.data_ptr<float>();
  auto* label = batch.labels.data_ptr<int64_t>();
  for (int64_t index : indices) {
    require(index >= 0 && index < dataset_->count, "sample {} is outside 0..{}", index, dataset_->count - 1);
    const uint8_t* source = dataset_->images.data() + index * pixels;
    for (int64_t i = 0; i < pixels; ++i) *image++ = kNormalised[source[i]];
    *label++ = dataset_->labels[static_cast<size_t>(index)];
  }
  if (dataset_->rows != input_.size || dataset_->cols != input_.size) {
    batch.images = torch::upsample_bilinear2d(batch.images, {input_.size, input_.size},
                                              /*align_corners=*/false);
  }
  batch.images = batch.images.expand({count, input_.channels, input_.size, input_.size});
  return batch;
}

}  // namespace virga::train
