#include "virga/torch/models.h"

#include <array>
#include <fmt/ranges.h>
#include <string_view>
#include <torch/torch.h>

#include "virga/base/error.h"
#include "virga/data/dataset.h"

namespace virga::train {
namespace {

// Layers are listed in braces, not in parentheses: braces fix the order in which they are made and
// so draw their initial values; it is the order that Python has, too.
namespace nn = torch::nn;
using torch::Tensor;

nn::Sequential mlp() {
  return nn::Sequential{nn::Flatten(), nn::Linear(784, 2048),           nn::ReLU(), nn::Linear(2048, 1024),
                        nn::ReLU(),    nn::Linear(1024, data::kClasses)};
}

nn::Sequential lenet5() {
  return nn::Sequential{nn::Conv2d(nn::Conv2dOptions(1, 6, 5).padding(2)),
                        nn::ReLU(),
                        nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(6, 16, 5)),
                        nn::ReLU(),
                        nn::MaxPool2d(2),
                        nn::Flatten(),
                        nn::Linear(400, 120),
                        nn::ReLU(),
                        nn::Linear(120, 84),
                        nn::ReLU(),
                        nn::Linear(84, data::kClasses)};
}

// A convolution without bias (a BatchNorm follows), initialised as the ResNet paper says (He et al.
// 2015, fan out).
nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  nn::Conv2d layer(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
  nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
  return layer;
}

// Two 3x3 convolutions and a shortcut around them: the identity, or a 1x1 convolution where the
// shape changes.
class BasicBlock : public nn::Module {
 public:
  BasicBlock(int64_t in, int64_t out, int64_t stride)
      : body_{convolution(in, out, 3, stride), nn::BatchNorm2d(out), nn::ReLU(), convolution(out, out, 3, 1),
              nn::BatchNorm2d(out)} {
    register_module("body", body_);
    if (stride == 1 && in == out) return;
    shortcut_ = nn::Sequential{convolution(in, out, 1, stride), nn::BatchNorm2d(out)};
    register_module("shortcut", shortcut_);
  }

  Tensor forward(const Tensor& x) {
    const Tensor side = shortcut_.is_empty() ? x : shortcut_->forward(x);
    return body_->forward(x).add_(side).relu_();
  }

 private:
  nn::Sequential body_;
  nn::Sequential shortcut_{nullptr};
};

// A 3x3 stem, then for each width `blocks` blocks (the first of every width but the first halves
// the image), average pooling and one linear layer.
nn::Sequential resnet(const std::vector<int64_t>& widths, int blocks) {
  nn::Sequential layers{convolution(3, widths[0], 3, 1), nn::BatchNorm2d(widths[0]), nn::ReLU()};
  int64_t in = widths[0];
  for (int64_t width : widths) {
    for (int block = 0; block < blocks; ++block) {
      layers->push_back(BasicBlock(in, width, in == width ? 1 : 2));
      in = width;
    }
  }
  layers->push_back(nn::AdaptiveAvgPool2d(1));
  layers->push_back(nn::Flatten());
  layers->push_back(nn::Linear(in, data::kClasses));
  return layers;
}

// The models known by name. To know another one, add a line.
struct KnownModel {
  std::string_view name;
  InputSpec input;
  nn::Sequential (*make)();
};
constexpr std::array kKnownModels = {
    KnownModel{"mlp", {1, 28}, &mlp},
    KnownModel{"lenet5", {1, 28}, &lenet5},
    KnownModel{"resnet20",
               {3, 32},
               [] {
                 return resnet({16, 32, 64}, 3);
               }},
    KnownModel{"resnet18",
               {3, 32},
               [] {
                 return resnet({64, 128, 256, 512}, 2);
               }},
};

}  // namespace

Model::Model(InputSpec input, nn::Sequential layers) : input_(input), layers_(std::move(layers)) {
  register_module("layers", layers_);
}

std::shared_ptr<Model> make_model(const std::string& name, uint64_t seed) {
  for (const KnownModel& known : kKnownModels) {
    if (name != known.name) continue;
    torch::manual_seed(seed);
    return std::make_shared<Model>(known.input, known.make());
  }
  fail(ErrorCode::kInvalidArgument, "unknown model \"{}\"; known: {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const KnownModel& known : kKnownModels) names.emplace_back(known.name);
  return names;
}

}  // namespace virga::train
