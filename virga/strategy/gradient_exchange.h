#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "virga/cluster/job.h"
#include "virga/plan/bucket_plan.h"
#include "virga/strategy/strategy.h"

namespace virga::strategy {

// What a step does when a gradient holds NaN or Inf. The decision is the same on all ranks, since it is taken on what
// the exchange gave all of them.
enum class NonFinitePolicy {
  kError,     // the job ends on every rank
  kSkipStep,  // finish() returns false
  kKeep,      // the same, for a caller whose loss scaler looks for NaN itself: the gradient holds them on all ranks
};
NonFinitePolicy parse_non_finite_policy(const std::string& text);  // "error", "skip-step" or "keep"
std::string_view to_string(NonFinitePolicy policy);

struct ExchangeOptions {
  std::string strategy = "hitopk";
  StrategyOptions strategy_options;
  NonFinitePolicy non_finite = NonFinitePolicy::kError;
  size_t bucket_bytes = size_t{4} << 20;
};

// A parameter whose gradient is exchanged; its slice follows that of the one before.
struct Parameter {
  std::string name;
  size_t elements = 0;
};

// The half of a replica that knows no tensors: gradients lie one after the other in one array of floats; as soon as all
// of a bucket's are complete its exchange begins, while backward goes on with others.
//
//   for every parameter, in any order: write its slice; ready(parameter);
//   finish();   // waits; the array holds the mean over all ranks
//
// Calls come from one thread at a time, but ready() may come from several. All ranks make the same calls, except that
// the order of ready() is their own.
class GradientExchange {
 public:
  // Agrees with the other ranks: throws kMismatch on every rank if parameters or options differ; the bucket plan is
  // rank 0's. `gradients` must outlive this object and have as many elements as all parameters together.
  GradientExchange(cluster::Job& job, std::vector<Parameter> parameters, std::span<float> gradients,
                   ExchangeOptions options);
  // Where exchanges are still under way, the job ends first: they use the caller's memory.
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // The slice of this parameter holds this rank's gradient and is not to be touched until finish(). Throws
  // kInvalidArgument if it was ready already in this step.
  void ready(size_t parameter);
  bool is_ready(size_t parameter) const { return ready_[parameter]; }

  // For a step that can't be completed: forgets what is ready. False if a bucket's exchange has begun; then nothing is
  // forgotten, since other ranks count on the rest.
  bool forget_step();

  // Waits until all buckets hold the mean; every parameter must be ready. Returns false if a gradient was not finite
  // and the policy is not kError: the caller must not step. Throws kNonFinite under kError, and whatever ended the job;
  // no exchange is under way afterwards, whatever happens. The next ready() begins the next step. `while_waiting` is
  // called every tenth of a second; what it throws ends the job on all ranks and is thrown on.
  bool finish(const std::function<void()>& while_waiting = nullptr);

  // Changes to another strategy between two steps, on all ranks. What the old one kept in residuals is added to the
  // next step's gradient: nothing is lost. Throws as the constructor does.
  void set_strategy(const std::string& name, const StrategyOptions& options);

  // What the strategy has not sent yet; see Strategy. set_residuals: for resuming, on the same rank of an equal job;
  // kInvalidArgument unless sizes agree with residuals().
  std::vector<Residual> residuals() const { return strategy_->residuals(); }
  void set_residuals(const std::vector<std::vector<float>>& values);

  // Adds a residual of an earlier exchange to this rank's gradient in the coming step, once; where that is skipped, in
  // the next. Its values stand for a mean, the gradient for one rank's share of it, so they are multiplied by the
  // number of ranks.
  void carry_over(size_t begin, std::vector<float> values);
  std::vector<Residual> carried() const;  // what waits for the coming step

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const plan::BucketPlan& plan() const { return plan_; }
  const Strategy& strategy() const { return *strategy_; }
  const ExchangeOptions& options() const { return options_; }

  // When each bucket was exchanged in the last step, on this rank.
  const std::vector<TimeSpan>& exchange_spans() const { return spans_; }

 private:
  void agree();
  void agree_on_plan();
  uint64_t purpose(size_t bucket) const;
  std::unique_ptr<Strategy> make_strategy() const;
  void launch_ready();
  void launch(size_t bucket);
  void add_carried(pattern::Range range);
  void end_step(bool applied);
  bool wait_for(size_t bucket, const std::function<void()>& while_waiting);
  void begin_step();
  void give_up();
  [[noreturn]] void stop_everywhere(size_t bucket);

  struct Carried {
    size_t begin;
    std::vector<float> values;
  };

  cluster::Job& job_;
  const std::vector<Parameter> parameters_;
  const std::span<float> gradients_;
  ExchangeOptions options_;
  uint64_t number_ = 0;  // among the exchanges of this process; the same on all ranks, which make them together
  plan::BucketPlan plan_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<size_t> bucket_of_;  // by parameter
  std::vector<Carried> carried_;
  std::vector<std::vector<float>> before_;  // the strategy's residuals before a step that something is carried into

  std::mutex mutex_;                          // guards what follows
  std::vector<bool> ready_;                   // by parameter
  std::vector<size_t> missing_;               // by bucket: parameters that are not ready
  std::vector<std::future<void>> exchanged_;  // by bucket
  std::vector<TimeSpan> spans_;               // by bucket; its end is written on the loop before the future is ready
  size_t next_bucket_ = 0;
};

}  // namespace virga::strategy
