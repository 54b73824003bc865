#include "virga/torch/models.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <torch/torch.h>

#include "virga/base/error.h"

namespace virga::train {
namespace {

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

// Counted by hand from the layers' shapes: see docs of make_model and the papers.
const std::map<std::string, int64_t> kParameters = {
    {"mlp", 3'716'106}, {"lenet5", 61'706}, {"resnet20", 272'474}, {"resnet18", 11'173'962}};

TEST(Models, HaveTheirParameters) {
  EXPECT_EQ(model_names().size(), kParameters.size());
  for (const std::string& name : model_names()) {
    EXPECT_EQ(count_parameters(*make_model(name, 1)), kParameters.at(name)) << name;
  }
}

TEST(Models, MapImagesToLogitsAndTrain) {
  for (const std::string& name : model_names()) {
    const auto model = make_model(name, 1);
    const auto [channels, size] = model->input();
    const torch::Tensor logits = model->forward(torch::randn({2, channels, size, size}));
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, 10})) << name;
    logits.square().sum().backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << name << " " << item.key();
      EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << name << " " << item.key();
    }
  }
}

TEST(Models, StartFromTheSeedAlone) {
  for (const std::string& name : model_names()) {
    const auto a = make_model(name, 5)->parameters();
    torch::rand({3});  // the generator's state before must not matter
    const auto b = make_model(name, 5)->parameters();
    const auto c = make_model(name, 6)->parameters();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << name << " " << i;
    EXPECT_FALSE(torch::equal(a[0], c[0])) << name;
  }
}

// ResNet-20 written out as formulas over the parameters' names, batch statistics in every
// BatchNorm.
class ResNet20Reference {
 public:
  explicit ResNet20Reference(const torch::nn::Module& model) : parameters_(model.named_parameters()) {}

  torch::Tensor forward(const torch::Tensor& images) const {
    torch::Tensor x = convolve(images, "layers.0", "layers.1", 1).relu();
    for (int block = 0; block < 9; ++block) {
      const std::string name = fmt::format("layers.{}.", 3 + block);
      const bool halves = block == 3 || block == 6;
      const torch::Tensor inner = convolve(x, name + "body.0", name + "body.1", halves ? 2 : 1).relu();
      const torch::Tensor body = convolve(inner, name + "body.3", name + "body.4", 1);
      x = (body + (halves ? convolve(x, name + "shortcut.0", name + "shortcut.1", 2) : x)).relu();
    }
    return torch::linear(x.mean({2, 3}), parameters_["layers.14.weight"], parameters_["layers.14.bias"]);
  }

 private:
  torch::Tensor convolve(const torch::Tensor& x, const std::string& layer, const std::string& norm,
                         int64_t stride) const {
    const torch::Tensor& kernel = parameters_[layer + ".weight"];
    const torch::Tensor y = torch::conv2d(x, kernel, {}, stride, kernel.size(2) / 2);
    const torch::Tensor mean = y.mean({0, 2, 3}, true), variance = y.var({0, 2, 3}, false, true);
    const auto along = [](const torch::Tensor& channel) { return channel.view({1, -1, 1, 1}); };
    return (y - mean) / (variance + 1e-5).sqrt() * along(parameters_[norm + ".weight"]) +
           along(parameters_[norm + ".bias"]);
  }

  torch::OrderedDict<std::string, torch::Tensor> parameters_;
};

TEST(Models, ResNetIsTheFormula) {
  const auto model = make_model("resnet20", 1);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : model->parameters()) parameter.add_(torch::randn_like(parameter), 0.05);
  const torch::Tensor images = torch::randn({4, 3, 32, 32});
  const torch::Tensor expected = ResNet20Reference(*model).forward(images);
  EXPECT_TRUE(torch::allclose(model->forward(images), expected, 1e-3, 1e-4));
}

TEST(Models, UnknownNameListsTheKnown) {
  try {
    make_model("vgg", 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(error.what(), "unknown model \"vgg\"; known: mlp, lenet5, resnet20, resnet18");
  }
}

}  // namespace
}  // namespace virga::train
