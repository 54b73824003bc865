#pragma once

#include "virga/cluster/job.h"
#include "virga/data/dataset.h"
#include "virga/torch/models.h"

namespace virga::train {

// Share of the dataset's samples that the model labels right, 0 .. 1; the same on all ranks. Every rank takes its part of the samples.
double accuracy(Model& model, const data::Dataset& dataset, cluster::Job& job);

}  // namespace virga::train
