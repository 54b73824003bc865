#include "virga/torch/sgd.h"

#include <cmath>
#include <torch/torch.h>

namespace virga::train {
namespace {

std::span<float> span_of(torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

FlatSgd::FlatSgd(FlatParameters& parameters, float momentum, float weight_decay) : parameters_(parameters) {
  require(std::isfinite(momentum) && momentum >= 0 && momentum < 1, "momentum must be in [0, 1), got {}", momentum);
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight decay must be at least 0, got {}", weight_decay);
  options_.momentum = momentum;
  options_.weight_decay = weight_decay;
  if (momentum > 0) momentum_buffer_.resize(static_cast<size_t>(parameters.numel()));
}

void FlatSgd::step(float rate) {
  torch::NoGradGuard no_grad;
  options_.lr = rate;
  kernel::sgd_step(span_of(parameters_.values()), span_of(parameters_.gradients()), momentum_buffer_, options_);
}

}  // namespace virga::train
