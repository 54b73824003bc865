#pragma once

#include <utility>
#include <vector>

#include "virga/collective/sparse_allreduce/sparse.h"
#include "virga/strategy/strategy.h"

namespace virga::strategy {

// What top-k strategies share: a residual for every bucket and what happens to it at the end of a step.
class Sparse : public Strategy {
 public:
  // residual_elements[b]: the size of bucket b's residual on this rank.
  Sparse(const StrategyContext& context, const std::vector<size_t>& residual_elements);

  void end_step(bool applied) override;
  double density() const override { return options_.density; }
  Duration select_time() const override { return last_select_time_; }

 protected:
  collective::SparseOptions options_;
  std::vector<collective::Selector> selectors_;  // one a bucket

 private:
  const bool error_feedback_;
  Duration last_select_time_{0};
};

}  // namespace virga::strategy
