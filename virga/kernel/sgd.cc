#include "virga/kernel/sgd.h"

#include "virga/base/error.h"
#include "virga/kernel/table.h"

namespace virga::kernel {

void sgd_step(std::span<float> param, std::span<const float> grad, std::span<float> momentum_buffer,
              const SgdOptions& options) {
  const size_t n = param.size();
  require(grad.size() == n, "{} parameters but {} gradients", n, grad.size());
  const size_t expected = options.momentum == 0 ? 0 : n;
  require(momentum_buffer.size() == expected,
          "a step over {} parameters with momentum {} needs a momentum buffer of {} elements, not {}", n,
          options.momentum, expected, momentum_buffer.size());
  if (options.momentum == 0) {
    elementwise_table().sgd(param.data(), grad.data(), options.lr, options.weight_decay, n);
  } else {
    elementwise_table().sgd_momentum(param.data(), grad.data(), momentum_buffer.data(), options.lr, options.momentum,
                                     options.weight_decay, n);
  }
}

}  // namespace virga::kernel
