#include "virga/torch/flat_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <torch/torch.h>

#include "virga/base/error.h"

namespace virga::train {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;
using torch::Tensor;

// Two linear layers around a BatchNorm, a frozen and an unused parameter.
struct Net : nn::Module {
  Net() {
    torch::manual_seed(1);
    first = register_module("first", nn::Linear(4, 3));
    norm = register_module("norm", nn::BatchNorm1d(3));
    second = register_module("second", nn::Linear(3, 2));
    unused = register_parameter("unused", torch::ones({5}));
    first->bias.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) { return second->forward(norm->forward(first->forward(x))); }

  nn::Linear first{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Linear second{nullptr};
  Tensor unused;
};

Tensor input(int64_t seed) {
  torch::manual_seed(seed);
  return torch::randn({6, 4});
}

void backward(Net& net, int64_t seed) { net.forward(input(seed)).square().sum().backward(); }

void collect(FlatParameters& flat) {
  for (size_t i = 0; i < flat.slices().size(); ++i) flat.collect_gradient(i);
}

// What autograd leaves in a module of its own, with `seeds.size()` backward passes added up: the
// trainable gradients one after the other, zeros where there is none.
Tensor expected_gradients(const std::vector<int64_t>& seeds) {
  Net net;
  for (int64_t seed : seeds) backward(net, seed);
  std::vector<Tensor> parts;
  for (const Tensor& parameter : net.parameters()) {
    if (!parameter.requires_grad()) continue;
    const Tensor gradient = parameter.grad().defined() ? parameter.grad() : torch::zeros_like(parameter);
    parts.push_back(gradient.flatten());
  }
  return torch::cat(parts);
}

TEST(FlatParameters, LaysTrainableParametersEndToEnd) {
  Net net;
  std::vector<Tensor> parts;
  for (const Tensor& parameter : Net().parameters()) {
    if (parameter.requires_grad()) parts.push_back(parameter.detach().flatten());
  }
  FlatParameters flat(net);
  EXPECT_TRUE(torch::equal(flat.values(), torch::cat(parts)));
  std::vector<std::string> names;
  int64_t offset = 0;
  for (const ParameterSlice& slice : flat.slices()) {
    names.push_back(slice.name);
    EXPECT_EQ(slice.offset, offset);
    offset += slice.numel;
  }
  EXPECT_EQ(offset, flat.numel());
  EXPECT_EQ(names, (std::vector<std::string>{"unused", "first.weight", "norm.weight", "norm.bias", "second.weight",
                                             "second.bias"}));
}

TEST(FlatParameters, AliasesBothWays) {
  Net net;
  FlatParameters flat(net);
  flat.values().fill_(2);
  EXPECT_TRUE(torch::equal(net.second->weight, torch::full({2, 3}, 2.0f)));
  torch::NoGradGuard no_grad;
  net.second->bias.fill_(7);
  EXPECT_EQ(flat.values()[-1].item<float>(), 7);
}

TEST(FlatParameters, MemoryLivesAsLongAsTheModule) {
  auto net = std::make_unique<Net>();
  auto flat = std::make_unique<FlatParameters>(*net);
  flat->values().fill_(3);
  const c10::weak_intrusive_ptr<c10::TensorImpl> memory(flat->values().getIntrusivePtr());
  flat.reset();
  EXPECT_FALSE(memory.expired());
  EXPECT_TRUE(torch::equal(net->first->weight, torch::full({3, 4}, 3.0f)));
  net.reset();
  EXPECT_TRUE(memory.expired());
}

TEST(FlatParameters, CollectsGradientsOverSteps) {
  Net net;
  FlatParameters flat(net);
  for (int step = 0; step < 3; ++step) {
    flat.zero_grad();
    backward(net, 10);
    collect(flat);
    EXPECT_TRUE(torch::equal(flat.gradients(), expected_gradients({10}))) << "step " << step;
    collect(flat);  // once more changes nothing
    EXPECT_TRUE(torch::equal(flat.gradients(), expected_gradients({10})));
  }
  EXPECT_EQ(net.second->weight.grad().data_ptr<float>(), flat.gradients().data_ptr<float>() + flat.numel() - 8);
}

TEST(FlatParameters, AccumulatesOverBackwardPasses) {
  Net net;
  FlatParameters flat(net);
  for (bool collect_between : {false, true}) {
    flat.zero_grad();
    backward(net, 10);
    if (collect_between) collect(flat);
    backward(net, 11);
    collect(flat);
    EXPECT_TRUE(torch::equal(flat.gradients(), expected_gradients({10, 11}))) << collect_between;
  }
}

TEST(FlatParameters, UnusedParametersGetZeros) {
  Net net;
  FlatParameters flat(net);
  flat.gradients().fill_(9);
  backward(net, 10);
  collect(flat);
  EXPECT_TRUE(torch::equal(flat.gradients().slice(0, 0, 5), torch::zeros({5})));
  EXPECT_TRUE(torch::equal(net.unused.grad(), torch::zeros({5})));
}

TEST(FlatParameters, ReplacedGradientIsCopiedIn) {
  Net net;
  FlatParameters flat(net);
  backward(net, 10);
  collect(flat);
  net.second->bias.mutable_grad() = torch::full({2}, 5.0f);
  net.second->weight.mutable_grad() = torch::arange(6.0f).view({3, 2}).t();  // not contiguous
  collect(flat);
  EXPECT_TRUE(torch::equal(flat.gradients().slice(0, -8), torch::tensor({0.f, 2.f, 4.f, 1.f, 3.f, 5.f, 5.f, 5.f})));
}

// The user may go on with torch's optimizers, whose zero_grad() of 1.13 detaches gradients in
// place.
TEST(FlatParameters, WorksWithTorchOptimizers) {
  Net net, plain;
  FlatParameters flat(net);
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::optim::SGD optimizer(net.parameters(), options), plain_optimizer(plain.parameters(), options);
  for (int64_t step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    plain_optimizer.zero_grad();
    backward(net, step);
    backward(plain, step);
    collect(flat);
    optimizer.step();
    plain_optimizer.step();
  }
  EXPECT_TRUE(torch::equal(net.first->weight, plain.first->weight));
  EXPECT_TRUE(torch::equal(net.second->weight, plain.second->weight));
}

TEST(FlatParameters, ListsBuffers) {
  Net net;
  const FlatParameters flat(net);
  std::vector<std::string> names;
  for (const auto& [name, buffer] : flat.buffers()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
}

TEST(FlatParameters, TiedWeightsLieThereOnce) {
  nn::Linear linear(3, 3);
  nn::Sequential tied(linear, linear);
  FlatParameters flat(*tied);
  EXPECT_EQ(flat.numel(), 12);
  tied->forward(torch::ones({1, 3})).sum().backward();
  collect(flat);
  EXPECT_EQ(linear->bias.grad().data_ptr<float>(), flat.gradients().data_ptr<float>() + 9);
}

void expect_refused(nn::Module& module, const std::string& part) {
  try {
    FlatParameters flat(module);
    FAIL() << "no error, expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(FlatParameters, RefusesWhatItCannotTrain) {
  nn::ReLU none;
  expect_refused(*none, "no trainable parameter");
  nn::Linear wide(2, 2);
  wide->to(torch::kFloat64);
  expect_refused(*wide, "parameter weight is Double; only fp32");
}

TEST(ParametersSha256, KnownAnswer) {
  nn::Linear one(nn::LinearOptions(1, 1).bias(false));
  one->weight.detach().zero_();
  EXPECT_EQ(parameters_sha256(*one), "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119");
}

TEST(ParametersSha256, SeesEveryParameterAndNoBuffer) {
  Net net;
  const std::string before = parameters_sha256(net);
  net.norm->running_mean.fill_(4);
  EXPECT_EQ(parameters_sha256(net), before);
  FlatParameters flat(net);
  EXPECT_EQ(parameters_sha256(net), before);  // where the parameters lie makes no difference
  for (Tensor& parameter : net.parameters()) {
    const std::string last = parameters_sha256(net);
    parameter.detach().view({-1})[-1] += 1;
    EXPECT_NE(parameters_sha256(net), last);
  }
}

}  // namespace
}  // namespace virga::train
