#pragma once

#include <vector>

#include "virga/collective/sparse_allreduce/sparse_allreduce.h"
#include "virga/strategy/strategy.h"

namespace virga::strategy {

// What top-k strategies share: a residual for every bucket and what happens to it at the end of a step.
class Sparse : public Strategy {
 public:
  // residual_of[b]: the part of the flat gradient that bucket b's residual on this rank stands for.
  Sparse(const StrategyContext& context, std::vector<pattern::Range> residual_of);

  void end_step(bool applied) override;
  std::vector<Residual> residuals() const override;
  void set_residuals(const std::vector<std::vector<float>>& values) override;
  double density() const override { return options_.density; }
  std::vector<TimeSpan> select_spans() const override;

 protected:
  collective::SparseOptions options_;
  std::vector<collective::Selector> selectors_;  // one a bucket

 private:
  const std::vector<pattern::Range> residual_of_;
  const bool error_feedback_;
};

}  // namespace virga::strategy
