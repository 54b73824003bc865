#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "virga/cluster/job.h"
#include "virga/torch/metrics.h"
#include "virga/torch/replica.h"

namespace virga::train {

struct TrainOptions {
  std::string model = "mlp";
  std::string data = "fashion-mnist";  // a name or a folder of IDX files
  strategy::ExchangeOptions replica;
  int64_t batch_size = 32;  // a rank's
  std::optional<int64_t> epochs, steps;
  std::optional<double> seconds;  // whichever of the three comes first ends the run; one epoch if none is set
  uint64_t seed = 1;
  int threads = 0;  // 0: cores / ranks on the host, at least 1
  double learning_rate = 0.05;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  int64_t warmup_steps = 0;
  std::optional<int64_t> test_samples;  // how many of the test set the run is judged by; default all, 0 none
  std::optional<std::string> metrics;   // a file; written by rank 0
};

// What a run tells while it goes on, on every rank.
struct Progress {
  int64_t step = 0;     // done so far
  int64_t epoch = 0;    // the one that is under way
  double fraction = 0;  // of the run, 0 .. 1
  double loss = 0;      // mean of the latest steps
  double steps_per_second = 0;
};

// Throws kInvalidArgument for options that can't be followed, before any rank is waited for.
void check(const TrainOptions& options);

// Joins the job of the environment, trains, evaluates on the test set and checks at every epoch and at the end that all
// ranks hold the same parameters. The same summary on all ranks, but for times.
Summary train(const TrainOptions& options, const std::function<void(const Progress&)>& on_progress);

}  // namespace virga::train
