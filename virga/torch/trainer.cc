#include "virga/torch/trainer.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <thread>
#include <torch/torch.h>

#include "virga/collective/broadcast/broadcast.h"
#include "virga/data/dataset.h"
#include "virga/data/sampler.h"
#include "virga/runtime/clock.h"
#include "virga/torch/batch_loader.h"
#include "virga/torch/evaluate.h"
#include "virga/torch/models.h"
#include "virga/torch/schedule.h"
#include "virga/torch/sgd.h"

namespace virga::train {
namespace {

constexpr size_t kLossWindow = 50;

std::vector<cluster::Setting> settings_of(const TrainOptions& options, const data::DatasetSplits& data) {
  const auto optional_text = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string("none"); };
  return {{"model", options.model},
          {"strategy", options.replica.strategy},
          {"strategy options", strategy::to_text(options.replica.strategy_options)},
          {"batch size", std::to_string(options.batch_size)},
          {"epochs", optional_text(options.epochs)},
          {"steps", optional_text(options.steps)},
          {"seconds", optional_text(options.seconds)},
          {"seed", std::to_string(options.seed)},
          {"samples", fmt::format("{} to train on, {} to test on", data.train.count, data.test.count)},
          {"test samples", optional_text(options.test_samples)},
          {"learning rate", fmt::format("{} momentum {} weight decay {} warm-up {}", options.learning_rate,
                                        options.momentum, options.weight_decay, options.warmup_steps)}};
}

cluster::JobOptions job_options(const TrainOptions& options, const data::DatasetSplits& data) {
  cluster::JobOptions job;
  job.settings = settings_of(options, data);
  return job;
}

// One rank's run from the first step to the last. Its parts are built in the order in which they need each other.
class Run {
 public:
  Run(const TrainOptions& options, const std::function<void(const Progress&)>& on_progress)
      : options_(options),
        on_progress_(on_progress),
        data_(data::load_dataset(options.data)),
        model_(make_model(options.model, options.seed)),
        job_(job_options(options, data_)),
        replica_(*model_, job_, options.replica),
        sgd_(replica_.parameters(), static_cast<float>(options.momentum), static_cast<float>(options.weight_decay)),
        loader_(data_.train, model_->input()),
        sampler_(data_.train.count, options.batch_size, job_.rank(), job_.world_size(), options.seed),
        metrics_(job_.rank() == 0 ? options.metrics : std::nullopt) {
    const int per_rank = static_cast<int>(std::thread::hardware_concurrency()) / job_.local_world_size();
    torch::set_num_threads(options.threads > 0 ? options.threads : std::max(1, per_rank));
    last_step_ = steps_in_all();
    schedule_ = {options.learning_rate, options.warmup_steps, last_step_};
    schedule_.validate();
  }

  Summary go() {
    const uint64_t bytes_before = job_.inter_host_bytes();
    const double begin = now();
    while (!ended_) one_step(begin);
    const double seconds = now() - begin;
    const uint64_t bytes = job_.inter_host_bytes() - bytes_before;
    return summarise(seconds, bytes);
  }

 private:
  double now() const { return to_seconds(clock_.now()); }

  std::optional<int64_t> steps_in_all() const {
    std::optional<int64_t> last = options_.steps;
    if (options_.epochs) {
      const int64_t by_epochs = *options_.epochs * sampler_.batches_per_epoch();
      last = last ? std::min(*last, by_epochs) : by_epochs;
    }
    if (!last && !options_.seconds) last = sampler_.batches_per_epoch();
    return last;
  }

  void one_step(double run_begin) {
    const int64_t in_epoch = step_ % sampler_.batches_per_epoch();
    if (in_epoch == 0) sampler_.set_epoch(static_cast<uint64_t>(step_ / sampler_.batches_per_epoch()));
    const double begin = now();
    ask_for_time(begin - run_begin);
    const double loss = forward_and_backward(sampler_.batch(in_epoch));
    const double computed = now();
    const bool apply = replica_.finish_step();
    const double arrived = now();
    if (apply) {
      sgd_.step(static_cast<float>(schedule_.rate(step_)));
    } else {
      ++skipped_;
    }
    const double end = now();
    record(loss, {end - begin, computed - begin + (end - arrived), arrived - computed,
                  to_seconds(strategy::sum(replica_.strategy().select_spans()))});
    ++step_;
    ended_ = time_is_up() || (last_step_ && step_ >= *last_step_);
    report(end - run_begin);
    if (ended_ || step_ % sampler_.batches_per_epoch() == 0) end_epoch();
  }

  double forward_and_backward(std::span<const int64_t> indices) {
    replica_.zero_grad();
    const Batch batch = loader_.load(indices);
    torch::Tensor loss = torch::nn::functional::cross_entropy(model_->forward(batch.images), batch.labels);
    loss.backward();
    return loss.item<double>();
  }

  // Whether a run by the clock ends after this step must be one decision for all ranks: rank 0's, sent while they
  // compute.
  void ask_for_time(double elapsed) {
    if (!options_.seconds) return;
    stop_ = std::byte(elapsed >= *options_.seconds ? 1 : 0);
    stop_known_ = job_.start([this](cluster::Comm& comm) {
      return collective::broadcast(comm, comm.topology().world(), 0, net::Buffer{&stop_, 1});
    });
  }
  bool time_is_up() {
    if (!options_.seconds) return false;
    stop_known_.get();
    return stop_ != std::byte(0);
  }

  void record(double loss, const StepTimes& times) {
    losses_.push_back(loss);
    if (losses_.size() > kLossWindow) losses_.pop_front();
    times_.push_back(times);
    metrics_.step(step_ + 1, loss, schedule_.rate(step_), times);
  }

  void report(double elapsed) {
    Progress progress;
    progress.step = step_;
    progress.epoch = (step_ - 1) / sampler_.batches_per_epoch();
    const double by_steps = last_step_ ? static_cast<double>(step_) / static_cast<double>(*last_step_) : 0;
    const double by_time = options_.seconds ? elapsed / *options_.seconds : 0;
    progress.fraction = std::min(1.0, std::max(by_steps, by_time));
    progress.loss = recent_loss();
    progress.steps_per_second = static_cast<double>(step_) / elapsed;
    on_progress_(progress);
  }

  double recent_loss() const {
    return std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
  }

  void end_epoch() {
    digest_ = replica_.check_equal(fmt::format("after step {}", step_));
    metrics_.epoch((step_ - 1) / sampler_.batches_per_epoch(), step_, recent_loss(), digest_);
  }

  double median_of(double StepTimes::*what) const {
    std::vector<double> values;
    for (const StepTimes& times : times_) values.push_back(times.*what);
    return median(std::move(values));
  }

  // The mean of a number that every rank has.
  double mean_over_ranks(const std::string& what, double mine) {
    double sum = 0;
    for (const std::string& text : job_.exchange(what, fmt::format("{}", mine)))
      sum += std::strtod(text.c_str(), nullptr);
    return sum / job_.world_size();
  }

  // The sum over the ranks of rank 0's host.
  double first_host_sum(const std::string& what, double mine) {
    const auto texts = job_.exchange(what, fmt::format("{}", mine));
    double sum = 0;
    for (Rank rank : job_.topology().ranks_of(0)) sum += std::strtod(texts[static_cast<size_t>(rank)].c_str(), nullptr);
    return sum;
  }

  Summary summarise(double seconds, uint64_t bytes) {
    Summary summary;
    summary.model = options_.model;
    summary.strategy = options_.replica.strategy;
    summary.density = replica_.strategy().density();
    summary.ranks = job_.world_size();
    summary.hosts = job_.topology().host_count();
    summary.parameters = replica_.parameters().numel();
    summary.steps = step_;
    summary.skipped_steps = skipped_;
    summary.seconds = seconds;
    summary.steps_per_second = static_cast<double>(step_) / seconds;
    summary.step_seconds_median = median_of(&StepTimes::step_seconds);
    summary.compute_seconds_median = median_of(&StepTimes::compute_seconds);
    summary.exposed_communication_seconds_median = median_of(&StepTimes::exposed_communication_seconds);
    summary.select_seconds_median = median_of(&StepTimes::select_seconds);
    summary.inter_host_bytes_per_step =
        first_host_sum("inter-host bytes", static_cast<double>(bytes)) / static_cast<double>(step_);
    summary.inter_host_bytes_per_step_formula = replica_.strategy().inter_host_bytes();
    summary.train_loss = mean_over_ranks("train loss", recent_loss());
    summary.test_accuracy = accuracy(*model_, data_.test, options_.test_samples, job_);
    summary.parameters_sha256 = digest_;
    metrics_.summary(summary);
    return summary;
  }

  const TrainOptions& options_;
  const std::function<void(const Progress&)>& on_progress_;
  const SteadyClock clock_;
  data::DatasetSplits data_;
  std::shared_ptr<Model> model_;
  cluster::Job job_;
  Replica replica_;
  FlatSgd sgd_;
  BatchLoader loader_;
  data::DistributedSampler sampler_;
  MetricsFile metrics_;
  Schedule schedule_;
  std::optional<int64_t> last_step_;
  int64_t step_ = 0;
  int64_t skipped_ = 0;
  bool ended_ = false;
  std::byte stop_{0};
  std::future<void> stop_known_;
  std::deque<double> losses_;
  std::vector<StepTimes> times_;
  std::string digest_;
};

}  // namespace

void check(const TrainOptions& options) {
  require(options.batch_size >= 1, "--batch-size must be at least 1, got {}", options.batch_size);
  require(!options.epochs || *options.epochs >= 1, "--epochs must be at least 1, got {}", options.epochs.value_or(0));
  require(!options.steps || *options.steps >= 1, "--steps must be at least 1, got {}", options.steps.value_or(0));
  require(!options.seconds || (std::isfinite(*options.seconds) && *options.seconds > 0),
          "--seconds must be above 0, got {}", options.seconds.value_or(0));
  require(!options.test_samples || *options.test_samples >= 0, "--test-samples must be at least 0, got {}",
          options.test_samples.value_or(0));
  require(options.threads >= 0, "--threads must be at least 1, got {}", options.threads);
  require(std::isfinite(options.learning_rate) && options.learning_rate >= 0,
          "--learning-rate must be at least 0, got {}", options.learning_rate);
  // Names and densities: a throw-away strategy on a throw-away plan judges them.
  const cluster::Topology alone({"here"});
  const std::vector<size_t> one_parameter = {1};
  const plan::BucketPlan plan = plan::plan_buckets(one_parameter, 4);
  strategy::make_strategy(options.replica.strategy, {alone, 0, plan, options.replica.strategy_options});
}

Summary train(const TrainOptions& options, const std::function<void(const Progress&)>& on_progress) {
  check(options);
  Run run(options, on_progress);
  return run.go();
}

}  // namespace virga::train
