#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <vector>

#include "virga/cluster/job.h"
#include "virga/plan/bucket_plan.h"
#include "virga/strategy/strategy.h"
#include "virga/torch/flat_parameters.h"

namespace virga::train {

// What a step does when a gradient holds NaN or Inf. The decision is the same on all ranks, since it is taken on what
// the exchange gave all of them.
enum class NonFinitePolicy { kError, kSkipStep };
NonFinitePolicy parse_non_finite_policy(const std::string& text);  // "error" or "skip-step"

struct ReplicaOptions {
  std::string strategy = "hitopk";
  strategy::StrategyOptions strategy_options;
  NonFinitePolicy non_finite = NonFinitePolicy::kError;
  size_t bucket_bytes = size_t{4} << 20;
};

// One rank's copy of a model that is trained by all ranks of a job. It owns the flat parameters and gradients, starts
// the exchange of each bucket while backward still runs, and gives every rank the same mean gradient.
//
//   replica.zero_grad();
//   loss(model->forward(x), y).backward();      // buckets leave as they become complete
//   if (replica.finish_step()) optimizer.step();  // waits; false if all ranks skip the step
//
// Calls come from one thread; the hooks may run on autograd's.
class Replica {
 public:
  // Throws kMismatch on every rank if models or options differ. Then rank 0's parameters and buffers become those of
  // all ranks, and its bucket plan is the plan. The module must outlive the replica and keep its parameters.
  Replica(torch::nn::Module& module, cluster::Job& job, ReplicaOptions options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Starts a step. Replaces Optimizer::zero_grad.
  void zero_grad();

  // Gradient accumulation: backward passes between hold_back() and send_next() only add to the gradient; the one after
  // send_next() sends the sum. A new replica sends.
  void hold_back() { sending_ = false; }
  void send_next() { sending_ = true; }

  // Waits until the mean gradient of all buckets is here; parameters that took no part in backward count as zero.
  // Returns false if the policy is kSkipStep and a gradient was not finite: the caller must not step. Throws kNonFinite
  // under kError, and whatever ended the job.
  bool finish_step();

  FlatParameters& parameters() { return flat_; }
  const plan::BucketPlan& plan() const { return plan_; }
  const strategy::Strategy& strategy() const { return *strategy_; }

  // Throws kMismatch on every rank, naming ranks, unless all hold the same parameters (SHA-256). Returns the digest.
  std::string check_equal(const std::string& when);

 private:
  struct BucketState {
    size_t missing = 0;  // parameters that have no gradient yet
    std::future<void> exchanged;
  };

  void agree_on_model();
  void agree_on_plan(size_t bucket_bytes);
  void broadcast_state();
  void install_hooks();
  void on_gradient(size_t parameter);
  void take_gradient(size_t parameter);
  void launch_ready();
  void launch(size_t bucket);
  [[noreturn]] void stop_everywhere(size_t bucket);
  bool wait_for(size_t bucket);

  torch::nn::Module& module_;
  cluster::Job& job_;
  const ReplicaOptions options_;
  FlatParameters flat_;
  plan::BucketPlan plan_;
  std::unique_ptr<strategy::Strategy> strategy_;
  std::vector<size_t> bucket_of_;  // by parameter

  std::mutex mutex_;  // guards what follows: hooks run on autograd's threads
  std::vector<BucketState> buckets_;
  std::vector<bool> has_gradient_;
  size_t next_bucket_ = 0;
  bool sending_ = true;
  std::optional<Error> hook_error_;

  // Autograd's nodes live only as long as somebody holds them, and the hooks with them.
  class Hook;
  std::vector<std::shared_ptr<void>> nodes_;
  std::shared_ptr<Replica*> alive_;  // hooks that outlive the replica see null
};

}  // namespace virga::train
