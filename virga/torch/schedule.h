#pragma once

#include <cstdint>
#include <optional>

namespace virga::train {

// Learning rate over the steps: a linear warm-up (Goyal et al. 2017), then half a cosine down to
// zero (Loshchilov and Hutter 2017). A pure function of the step, so all ranks agree on it and a
// resumed run goes on as if never stopped.
struct Schedule {
  double base_rate = 0.1;
  int64_t warmup_steps = 0;
  std::optional<int64_t> total_steps;  // none (a run ended by the clock): the rate stays at base_rate after warm-up

  // Throws kInvalidArgument unless base_rate is finite and at least 0, warmup_steps at least 0 and,
  // where given, total_steps is at least warmup_steps.
  void validate() const;

  // The rate for step 0, 1, ...: base_rate * (step + 1) / warmup_steps during warm-up; then
  // base_rate * (1 + cos(pi * (step - warmup_steps) / (total_steps - warmup_steps))) / 2, and 0
  // from total_steps on.
  double rate(int64_t step) const;
};

}  // namespace virga::train
