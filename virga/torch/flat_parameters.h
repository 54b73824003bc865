#pragma once

#include <cstdint>
#include <string>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <utility>
#include <vector>

namespace virga::train {

// One trainable parameter and where it lies in the flat tensors.
struct ParameterSlice {
  std::string name;         // as the module registered it: "layers.0.weight"
  torch::Tensor parameter;  // aliases values()[offset .. offset + numel)
  int64_t offset = 0;
  int64_t numel = 0;
};

// Moves the trainable parameters of a module into one contiguous fp32 tensor, and their gradients
// into another.
//
// Layout: the trainable (requires_grad) parameters one after the other in order of registration,
// each contiguous, without padding; a parameter registered twice (tied weights) lies there once.
// Backward makes gradients roughly from the last slice to the first. Frozen parameters are left
// alone; buffers (BatchNorm's statistics) are listed beside.
//
// After construction every parameter aliases its slice of values(): writing there changes the
// module. For gradients the cycle of a step is
//     zero_grad();  one or several backward passes;  collect_gradient(i) for every i;  read
//     gradients()
// Autograd hands the first gradient of a parameter over without copying, if the parameter has none
// yet; so zero_grad() only lets go of the gradients, and collect_gradient(i) moves one into its
// slice and makes the parameter's grad alias it. That is one write and one read of each gradient
// less than adding to zeroed memory.
//
// Not thread-safe as a whole; collect_gradient may run for different i at a time.
class FlatParameters {
 public:
  // Throws kInvalidArgument where the module has no trainable parameter, or one that is not fp32 or
  // not on the same device as the others (the message names it).
  explicit FlatParameters(torch::nn::Module& module);

  const std::vector<ParameterSlice>& slices() const { return slices_; }
  const std::vector<std::pair<std::string, torch::Tensor>>& buffers() const { return buffers_; }

  int64_t numel() const { return values_.numel(); }
  torch::Tensor& values() { return values_; }        // [numel]
  torch::Tensor& gradients() { return gradients_; }  // [numel]; a slice is right once it is collected

  // Lets go of all gradients. Replaces Optimizer::zero_grad() and Module::zero_grad().
  void zero_grad();

  // Brings the gradient of parameter `index` into its slice, whatever became of it: zeros where the
  // parameter got none (unused), a copy where it is a tensor of its own, nothing where it lies
  // there already.
  void collect_gradient(size_t index);

 private:
  torch::Tensor gradient_slice(const ParameterSlice& slice) const;

  std::vector<ParameterSlice> slices_;
  std::vector<std::pair<std::string, torch::Tensor>> buffers_;
  torch::Tensor values_;
  torch::Tensor gradients_;
};

// SHA-256, in hex, of the bytes of all parameters of the module, trainable and frozen, in order of
// registration, each row-major; buffers are not part of it. Equal on two ranks exactly where they
// hold the same parameters.
std::string parameters_sha256(const torch::nn::Module& module);

}  // namespace virga::train
