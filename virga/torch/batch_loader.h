#pragma once

#include <cstdint>
#include <span>
#include <torch/types.h>

#include "virga/data/dataset.h"
#include "virga/torch/models.h"

namespace virga::train {

// Images as a model wants them, with their labels.
struct Batch {
  torch::Tensor images;  // [n, channels, size, size], fp32
  torch::Tensor labels;  // [n], int64
};

// Makes batches of a dataset for one kind of model: pixels are normalised with Fashion-MNIST's mean
// and standard deviation, scaled to the model's size where it differs (bilinear, corners not
// aligned) and repeated over the channels (as a view: no copy). Refers to the dataset, which must
// outlive it. Holds no state: may be shared by threads.
class BatchLoader {
 public:
  BatchLoader(const data::Dataset& dataset, InputSpec input) : dataset_(&dataset), input_(input) {}

  // Throws kInvalidArgument for an index outside the dataset.
  Batch load(std::span<const int64_t> indices) const;

 private:
  const data::Dataset* dataset_;
  InputSpec input_;
};

}  // namespace virga::train
