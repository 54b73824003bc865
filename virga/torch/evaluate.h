#pragma once

#include <cstdint>
#include <optional>

#include "virga/cluster/job.h"
#include "virga/data/dataset.h"
#include "virga/torch/models.h"

namespace virga::train {

// Share of the dataset's first `samples` (default: all) that the model labels right, 0 .. 1; the same on all ranks.
// Every rank takes its part of the samples.
double accuracy(Model& model, const data::Dataset& dataset, std::optional<int64_t> samples, cluster::Job& job);

}  // namespace virga::train
