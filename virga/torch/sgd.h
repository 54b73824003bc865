#pragma once

#include <vector>

#include "virga/base/error.h"
#include "virga/kernel/sgd.h"
#include "virga/torch/flat_parameters.h"

namespace virga::train {

// SGD with momentum and weight decay on flat parameters, by our own kernel: the same bits on every rank, whatever its
// CPU. The semantics are torch.optim.SGD's.
class FlatSgd {
 public:
  FlatSgd(FlatParameters& parameters, float momentum, float weight_decay);

  // parameters -= rate * (momentum buffer of gradient + weight_decay * parameters)
  void step(float rate);

 private:
  FlatParameters& parameters_;
  kernel::SgdOptions options_;
  std::vector<float> momentum_buffer_;
};

}  // namespace virga::train
