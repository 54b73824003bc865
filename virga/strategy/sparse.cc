#include "virga/strategy/sparse.h"

#include <utility>

#include "virga/kernel/elementwise.h"

namespace virga::strategy {

Sparse::Sparse(const StrategyContext& context, std::vector<pattern::Range> residual_of)
    : options_(context.options.density, context.options.value_dtype, collective::Reduction::kAverage),
      residual_of_(std::move(residual_of)),
      error_feedback_(context.options.error_feedback) {
  collective::sparse_format(1, options_.density, options_.value_dtype);  // throws on options that can't be followed
  selectors_.reserve(residual_of_.size());
  for (pattern::Range range : residual_of_) selectors_.emplace_back(range.size());
}

std::vector<Residual> Sparse::residuals() const {
  std::vector<Residual> residuals;
  for (size_t b = 0; b < selectors_.size(); ++b) {
    residuals.push_back({residual_of_[b].begin, selectors_[b].feedback.residual()});
  }
  return residuals;
}

void Sparse::set_residuals(const std::vector<std::vector<float>>& values) {
  require(values.size() == selectors_.size(), "{} residuals given where there are {}", values.size(),
          selectors_.size());
  for (size_t b = 0; b < values.size(); ++b) {
    require(values[b].size() == residual_of_[b].size(), "residual {} has {} elements where {} are kept", b,
            values[b].size(), residual_of_[b].size());
    if (!kernel::all_finite(values[b])) fail(ErrorCode::kNonFinite, "residual {} holds NaN or Inf", b);
  }
  for (size_t b = 0; b < values.size(); ++b) selectors_[b].feedback.set_residual(values[b]);
}

std::vector<TimeSpan> Sparse::select_spans() const {
  std::vector<TimeSpan> spans;
  for (const collective::Selector& selector : selectors_) spans.push_back(selector.selected);
  return spans;
}

void Sparse::end_step(bool applied) {
  for (collective::Selector& selector : selectors_) {
    if (!error_feedback_) {
      selector.feedback.set_residual(std::vector<float>(selector.feedback.residual().size()));
    } else if (!applied) {
      selector.feedback.restore_last();
    }
  }
}

}  // namespace virga::strategy
