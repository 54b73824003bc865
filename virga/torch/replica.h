#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <vector>

#include "virga/cluster/job.h"
#include "virga/strategy/gradient_exchange.h"
#include "virga/torch/flat_parameters.h"

namespace virga::train {

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
  Replica(torch::nn::Module& module, cluster::Job& job, strategy::ExchangeOptions options);
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
  // Returns and throws what GradientExchange::finish() does, and what a hook found wrong during backward.
  bool finish_step();

  FlatParameters& parameters() { return flat_; }
  const strategy::Strategy& strategy() const { return exchange_->strategy(); }

  // Throws kMismatch on every rank, naming ranks, unless all hold the same parameters (SHA-256). Returns the digest.
  std::string check_equal(const std::string& when);

 private:
  void broadcast_state();
  void install_hooks();
  void on_gradient(size_t parameter);

  torch::nn::Module& module_;
  cluster::Job& job_;
  FlatParameters flat_;
  std::unique_ptr<strategy::GradientExchange> exchange_;

  std::mutex mutex_;  // guards what follows: hooks run on autograd's threads
  bool sending_ = true;
  std::optional<Error> hook_error_;

  // Autograd's nodes live only as long as somebody holds them, and the hooks with them.
  class Hook;
  std::vector<std::shared_ptr<void>> nodes_;
  std::shared_ptr<Replica*> alive_;  // hooks that outlive the replica see null
};

}  // namespace virga::train
