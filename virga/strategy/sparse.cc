#include "virga/strategy/sparse.h"

namespace virga::strategy {

Sparse::Sparse(const StrategyContext& context, const std::vector<size_t>& residual_elements)
    : options_(context.options.density, context.options.value_dtype,
               1.0f / static_cast<float>(context.topology.world_size())),
      error_feedback_(context.options.error_feedback) {
  collective::sparse_format(1, options_);  // throws on options that can't be followed
  selectors_.reserve(residual_elements.size());
  for (size_t elements : residual_elements) selectors_.emplace_back(elements);
}

void Sparse::end_step(bool applied) {
  last_select_time_ = Duration::zero();
  for (collective::Selector& selector : selectors_) {
    last_select_time_ += std::exchange(selector.time, Duration::zero());
    if (!error_feedback_) {
      selector.feedback.set_residual(std::vector<float>(selector.feedback.residual().size()));
    } else if (!applied) {
      selector.feedback.restore_last();
    }
  }
}

}  // namespace virga::strategy
