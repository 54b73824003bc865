#include "virga/torch/replica.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include "virga/base/hash.h"
#include "virga/collective/broadcast/broadcast.h"

namespace virga::train {
namespace {

std::vector<strategy::Parameter> parameters_of(const FlatParameters& flat) {
  std::vector<strategy::Parameter> parameters;
  for (const ParameterSlice& slice : flat.slices())
    parameters.push_back({slice.name, static_cast<size_t>(slice.numel)});
  return parameters;
}

std::span<float> floats_of(torch::Tensor& flat) { return {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())}; }

// Everything of the module that another rank must have too: names, shapes, types, what is trained.
std::string describe_module(const torch::nn::Module& module) {
  std::string text;
  int64_t elements = 0;
  for (const auto& item : module.named_parameters()) {
    text += fmt::format("{} {} {} {}\n", item.key(), fmt::join(item.value().sizes(), "x"),
                        std::string(item.value().dtype().name()), item.value().requires_grad());
    elements += item.value().numel();
  }
  for (const auto& item : module.named_buffers()) {
    text += fmt::format("{} {} {}\n", item.key(), fmt::join(item.value().sizes(), "x"),
                        std::string(item.value().dtype().name()));
  }
  return fmt::format("{} parameters in {} tensors, layout {:016x}", elements, module.parameters().size(), fnv1a(text));
}

// Contiguous memory that a broadcast can write to; a strided tensor goes through a copy.
void broadcast_tensor(cluster::Job& job, torch::Tensor tensor) {
  torch::Tensor flat = tensor.detach().contiguous();
  const net::Buffer buffer{static_cast<std::byte*>(flat.data_ptr()), flat.nbytes()};
  job.run([&](cluster::Comm& comm) { return collective::broadcast(comm, comm.topology().world(), 0, buffer); });
  if (flat.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(flat);
}

}  // namespace

class Replica::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::shared_ptr<Replica*> replica, size_t parameter) : replica_(std::move(replica)), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    if (*replica_ != nullptr) (*replica_)->on_gradient(parameter_);
    return outputs;
  }

 private:
  std::shared_ptr<Replica*> replica_;
  const size_t parameter_;
};

Replica::Replica(torch::nn::Module& module, cluster::Job& job, strategy::ExchangeOptions options)
    : module_(module), job_(job), flat_(module), alive_(std::make_shared<Replica*>(this)) {
  job_.require_equal("model", describe_module(module_));
  exchange_ = std::make_unique<strategy::GradientExchange>(job_, parameters_of(flat_), floats_of(flat_.gradients()),
                                                           std::move(options));
  broadcast_state();
  install_hooks();
}

Replica::~Replica() { *alive_ = nullptr; }

void Replica::broadcast_state() {
  torch::NoGradGuard no_grad;
  broadcast_tensor(job_, flat_.values());
  for (const auto& parameter : module_.parameters()) {
    if (!parameter.requires_grad()) broadcast_tensor(job_, parameter);
  }
  for (const auto& [name, buffer] : flat_.buffers()) broadcast_tensor(job_, buffer);
}

void Replica::install_hooks() {
  for (size_t i = 0; i < flat_.slices().size(); ++i) {
    const auto node = torch::autograd::impl::grad_accumulator(flat_.slices()[i].parameter);
    node->add_post_hook(std::make_unique<Hook>(alive_, i));
    nodes_.push_back(node);
  }
}

void Replica::zero_grad() {
  std::lock_guard lock(mutex_);
  flat_.zero_grad();
}

// Autograd has just put a gradient in place. Errors can't be thrown through it everywhere, so they wait for
// finish_step().
void Replica::on_gradient(size_t parameter) {
  std::lock_guard lock(mutex_);
  if (!sending_ || hook_error_) return;
  try {
    require(!exchange_->is_ready(parameter),
            "parameter '{}' got a second gradient in one step: call finish_step() and zero_grad() between two backward "
            "passes, or hold_back() before all but the last",
            flat_.slices()[parameter].name);
    flat_.collect_gradient(parameter);
    exchange_->ready(parameter);
  } catch (...) {
    hook_error_ = current_error();
  }
}

bool Replica::finish_step() {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < flat_.slices().size() && !hook_error_; ++i) {
    if (exchange_->is_ready(i)) continue;
    flat_.collect_gradient(i);
    exchange_->ready(i);
  }
  if (hook_error_) throw *hook_error_;
  return exchange_->finish();
}

std::string Replica::check_equal(const std::string& when) {
  std::string digest = parameters_sha256(module_);
  job_.require_equal("parameters_sha256 " + when, digest);
  return digest;
}

}  // namespace virga::train
