#include "virga/torch/schedule.h"

#include <cmath>
#include <numbers>

#include "virga/base/error.h"

namespace virga::train {

void Schedule::validate() const {
  require(std::isfinite(base_rate) && base_rate >= 0, "the learning rate is {}; it must be at least 0", base_rate);
  require(warmup_steps >= 0, "the warm-up is {} steps; it must be at least 0", warmup_steps);
  require(!total_steps || *total_steps >= warmup_steps, "a warm-up of {} steps is longer than the run of {}",
          warmup_steps, total_steps.value_or(0));
}

double Schedule::rate(int64_t step) const {
  if (step < warmup_steps) return base_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (!total_steps) return base_rate;
  if (step >= *total_steps) return 0;
  const auto done = static_cast<double>(step - warmup_steps);
  const auto all = static_cast<double>(*total_steps - warmup_steps);
  return base_rate * 0.5 * (1 + std::cos(std::numbers::pi * done / all));
}

}  // namespace virga::train
