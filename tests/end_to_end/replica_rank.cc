// One rank of replica_test: holds a Replica to its promises and exits with 0 if it keeps them.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <torch/torch.h>

#include "virga/torch/replica.h"

namespace virga::train {
namespace {

int failures = 0;

void expect(bool condition, const char* what) {
  if (condition) return;
  ++failures;
  std::fprintf(stderr, "not kept: %s\n", what);
}

// A trained layer, a frozen one, one that takes no part in forward, and a buffer.
struct Net : torch::nn::Module {
  Net() {
    trained = register_module("trained", torch::nn::Linear(6, 4));
    frozen = register_module("frozen", torch::nn::Linear(4, 4));
    unused = register_module("unused", torch::nn::Linear(4, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm(frozen(trained(x))); }

  torch::nn::Linear trained{nullptr}, frozen{nullptr}, unused{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

torch::Tensor input_of(int rank, int part) {
  torch::manual_seed(100 * rank + part);
  return torch::randn({8, 6});
}

void backward(Net& net, int rank, int part) { net.forward(input_of(rank, part)).pow(2).sum().backward(); }

std::shared_ptr<Net> net_of(uint64_t seed) {
  torch::manual_seed(seed);
  auto net = std::make_shared<Net>();
  torch::NoGradGuard no_grad;
  net->norm->running_mean.fill_(static_cast<double>(seed));
  return net;
}

bool equal_state(const Net& a, const Net& b) {
  bool equal = true;
  for (const auto& item : a.named_parameters()) equal &= torch::equal(item.value(), b.named_parameters()[item.key()]);
  for (const auto& item : a.named_buffers()) equal &= torch::equal(item.value(), b.named_buffers()[item.key()]);
  return equal;
}

// The gradient of `parts` batches a rank, summed in a fresh copy of rank 0's network.
torch::Tensor local_gradient(int rank, int parts) {
  const auto net = net_of(1);
  for (int part = 0; part < parts; ++part) backward(*net, rank, part);
  return torch::cat({net->trained->weight.grad().flatten(), net->trained->bias.grad().flatten()});
}

void check_mean(Replica& replica, int world, int parts, const char* what) {
  torch::Tensor mean = torch::zeros({28});
  for (int rank = 0; rank < world; ++rank) mean += local_gradient(rank, parts) / world;
  expect(torch::allclose(replica.parameters().gradients().slice(0, 0, 28), mean, 1e-4, 1e-5), what);
}

void run() {
  cluster::Job job;
  const auto net = net_of(static_cast<uint64_t>(job.rank()) + 1);
  strategy::ExchangeOptions options;
  options.strategy = "allreduce";
  options.bucket_bytes = 64;
  Replica replica(*net, job, options);
  expect(equal_state(*net, *net_of(1)), "parameters, frozen ones and buffers become rank 0's");
  replica.check_equal("at the start");

  replica.zero_grad();
  backward(*net, job.rank(), 0);
  expect(replica.finish_step(), "a finite step is applied");
  check_mean(replica, job.world_size(), 1, "the gradient is the mean over ranks");
  const torch::Tensor unused = replica.parameters().gradients().slice(0, 28, 28 + 15);
  expect(unused.abs().sum().item<float>() == 0, "an unused parameter's gradient is zero");
  expect(!net->frozen->weight.grad().defined(), "a frozen parameter gets no gradient");

  replica.zero_grad();
  replica.hold_back();
  backward(*net, job.rank(), 0);
  backward(*net, job.rank(), 1);
  replica.send_next();
  backward(*net, job.rank(), 2);
  expect(replica.finish_step(), "an accumulated step is applied");
  check_mean(replica, job.world_size(), 3, "the accumulated gradient is the mean over ranks of the sum");

  replica.zero_grad();
  backward(*net, job.rank(), 0);
  backward(*net, job.rank(), 1);
  try {
    replica.finish_step();
    expect(false, "two backward passes without hold_back() are refused");
  } catch (const Error& error) {
    expect(std::string(error.what()).find("second gradient") != std::string::npos, "the refusal says why");
  }
}

}  // namespace
}  // namespace virga::train

int main() {
  try {
    virga::train::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return virga::train::failures == 0 ? 0 : 1;
}
