#pragma once

#include <span>

namespace virga::kernel {

struct SgdOptions {
  float lr = 0;
  float momentum = 0;
  float weight_decay = 0;
};

// One step of stochastic gradient descent, in the order of operations of torch.optim.SGD (no
// dampening, no Nesterov), each rounded to fp32 on its own, no fused multiply-add:
//
//   d = grad + weight_decay * param
//   momentum_buffer = momentum_buffer * momentum + d, then d = momentum_buffer (zeros before the first step)
//   param = param + (-lr) * d
//
// All spans have one size. momentum_buffer is empty if and only if momentum is 0. kInvalidArgument
// otherwise.
void sgd_step(std::span<float> param, std::span<const float> grad, std::span<float> momentum_buffer,
              const SgdOptions& options);

}  // namespace virga::kernel
