#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <vector>

namespace virga::train {

// What a model's forward takes: images of [batch, channels, size, size], fp32, normalised (see
// BatchLoader).
struct InputSpec {
  int64_t channels;
  int64_t size;
};

// A classifier of small images: a sequence of layers from images to logits [batch, kClasses].
class Model : public torch::nn::Module {
 public:
  Model(InputSpec input, torch::nn::Sequential layers);

  torch::Tensor forward(const torch::Tensor& images) { return layers_->forward(images); }
  InputSpec input() const { return input_; }

 private:
  InputSpec input_;
  torch::nn::Sequential layers_;
};

// Makes a model by name, its initial values a pure function of (name, seed) on a given libtorch:
//
// - mlp: 784-2048-1024-10, ReLU; 3,716,106 parameters.
// - lenet5: LeCun et al. 1998 with ReLU and max pooling; 61,706 parameters.
// - resnet20: He et al. 2016, section 4.2 (16-32-64 channels), projection shortcuts; 272,474 parameters.
// - resnet18: the same paper's ResNet-18 with a 3x3 stem for 32x32 images; 11,173,962 parameters.
//
// Seeds torch's global generator. Throws kInvalidArgument for an unknown name; the message lists
// the known ones.
std::shared_ptr<Model> make_model(const std::string& name, uint64_t seed);

// The names that make_model knows.
std::vector<std::string> model_names();

}  // namespace virga::train
