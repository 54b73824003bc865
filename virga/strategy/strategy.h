#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "virga/collective/algorithm.h"
#include "virga/plan/bucket_plan.h"
#include "virga/runtime/time_span.h"

namespace virga::strategy {

// What a user may set about a strategy; each one reads what concerns it. All of it must be equal on all ranks.
struct StrategyOptions {
  double density = 0.01;                // kept / all, in (0, 1]: topk, hitopk
  DType value_dtype = DType::kFloat16;  // what selected values travel as: topk, hitopk
  bool error_feedback = true;           // false only to show what it is good for: topk, hitopk
};

// What a strategy has taken in and not sent yet: values[i] will be added to the mean of flat gradient begin + i.
struct Residual {
  size_t begin = 0;
  std::span<const float> values;
};

// "fp32", "fp16" or "bf16"; throws kInvalidArgument for anything else.
DType parse_value_dtype(std::string_view text);

// How replicas stay in agreement: what becomes of a bucket's gradient between backward and the update. One object a
// replica; loop thread only.
//
// For every step: exchange() once for every bucket, begun in the plan's order on all ranks (they may run side by side),
// then end_step() once all have ended.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // In: this rank's gradient. Out: the same bits on all ranks, standing for the mean over all ranks. NaN or Inf in any
  // rank's gradient makes at least one element NaN or Inf on all.
  virtual Task<void> exchange(collective::Comm& comm, size_t bucket, collective::Vector gradient) = 0;

  // The step is over. `applied` is false when all ranks skip it: what was taken out of residuals goes back. So a sparse
  // strategy keeps the finite gradients of a skipped step for later, as it keeps all else that is not sent; a dense
  // one, which has nowhere to keep them, drops them.
  virtual void end_step(bool applied) { (void)applied; }

  // Payload that one host sends to others in a step, by the formula in docs/algorithms.md; the mean over hosts.
  virtual double inter_host_bytes() const = 0;

  // Kept / all of what this strategy sends; 1 for dense ones.
  virtual double density() const { return 1; }

  // What this rank keeps between steps, in an order that (options, topology, plan, rank) determine; none for dense
  // strategies. set_residuals takes as many of the same sizes: kInvalidArgument otherwise, kNonFinite for NaN or Inf,
  // before anything changes. Between steps only.
  virtual std::vector<Residual> residuals() const { return {}; }
  virtual void set_residuals(const std::vector<std::vector<float>>& values) {
    require(values.empty(), "{} residuals given to a strategy that keeps none", values.size());
  }

  // When this rank selected what it sent of each bucket in the last step; none for dense strategies.
  virtual std::vector<TimeSpan> select_spans() const { return {}; }
};

// How long all of it took.
Duration sum(const std::vector<TimeSpan>& spans);

// What a strategy is made of.
struct StrategyContext {
  const cluster::Topology& topology;
  Rank rank;
  const plan::BucketPlan& plan;
  const StrategyOptions& options;
};

struct StrategyEntry {
  std::string_view name;
  std::string_view description;
  std::unique_ptr<Strategy> (*make)(const StrategyContext&);
};

// All strategies there are.
const std::vector<StrategyEntry>& strategies();

// Throws kInvalidArgument for an unknown name (the message lists the known ones) or options that can't be followed.
std::unique_ptr<Strategy> make_strategy(std::string_view name, const StrategyContext& context);

// The options as text: what must be equal on all ranks, for the start-up check.
std::string to_text(const StrategyOptions& options);

}  // namespace virga::strategy
