#include "virga/torch/replica.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include "virga/collective/broadcast/chain.h"
#include "virga/kernel/elementwise.h"

namespace virga::train {
namespace {

std::vector<size_t> parameter_elements(const FlatParameters& flat) {
  std::vector<size_t> elements;
  for (const ParameterSlice& slice : flat.slices()) elements.push_back(static_cast<size_t>(slice.numel));
  return elements;
}

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
  return fmt::format("{} parameters in {} tensors, layout {:016x}", elements, module.parameters().size(),
                     std::hash<std::string>{}(text));
}

// Contiguous memory that a broadcast can write to; a strided tensor goes through a copy.
void broadcast_tensor(cluster::Job& job, torch::Tensor tensor) {
  torch::Tensor flat = tensor.detach().contiguous();
  const net::Buffer buffer{static_cast<std::byte*>(flat.data_ptr()), flat.nbytes()};
  job.run([&](cluster::Comm& comm) { return collective::broadcast(comm, comm.topology().world(), 0, buffer); });
  if (flat.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(flat);
}

}  // namespace

NonFinitePolicy parse_non_finite_policy(const std::string& text) {
  if (text == "error") return NonFinitePolicy::kError;
  if (text == "skip-step") return NonFinitePolicy::kSkipStep;
  fail(ErrorCode::kInvalidArgument, "unknown policy '{}' for non-finite gradients; known are error, skip-step", text);
}

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

Replica::Replica(torch::nn::Module& module, cluster::Job& job, ReplicaOptions options)
    : module_(module),
      job_(job),
      options_(std::move(options)),
      flat_(module),
      alive_(std::make_shared<Replica*>(this)) {
  agree_on_model();
  agree_on_plan(options_.bucket_bytes);
  const strategy::StrategyContext context{job_.topology(), job_.rank(), plan_, options_.strategy_options};
  strategy_ = strategy::make_strategy(options_.strategy, context);
  broadcast_state();
  install_hooks();
  zero_grad();
}

// Normally nothing is under way here. If an exception came between backward and finish_step(), exchanges may be: they
// use our memory, so the job must end first.
Replica::~Replica() {
  *alive_ = nullptr;
  std::lock_guard lock(mutex_);
  for (BucketState& bucket : buckets_) {
    if (!bucket.exchanged.valid()) continue;
    job_.fail_everywhere(
        Error(ErrorCode::kAborted, fmt::format("rank {} gave up in the middle of a step", job_.rank()), job_.rank()));
    bucket.exchanged.wait();
  }
}

void Replica::agree_on_model() {
  job_.require_equal("model", describe_module(module_));
  job_.require_equal("strategy", options_.strategy);
  job_.require_equal("strategy options", strategy::to_text(options_.strategy_options));
  job_.require_equal("non-finite policy", options_.non_finite == NonFinitePolicy::kError ? "error" : "skip-step");
}

// Readiness is a matter of timing, so the plan is rank 0's, whatever the others would have planned.
void Replica::agree_on_plan(size_t bucket_bytes) {
  const std::vector<size_t> elements = parameter_elements(flat_);
  const std::string own = plan::to_text(plan::plan_buckets(elements, bucket_bytes));
  const auto texts = job_.exchange("bucket plan", job_.rank() == 0 ? own : "");
  plan_ = plan::parse_plan(texts[0], elements);
  bucket_of_.resize(elements.size());
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const pattern::Range range = plan_.buckets[b].parameters;
    std::fill(bucket_of_.begin() + static_cast<ptrdiff_t>(range.begin),
              bucket_of_.begin() + static_cast<ptrdiff_t>(range.end), b);
  }
  buckets_.resize(plan_.buckets.size());
}

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
  has_gradient_.assign(flat_.slices().size(), false);
  next_bucket_ = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) buckets_[b].missing = plan_.buckets[b].parameters.size();
}

// Autograd has just put a gradient in place. Errors can't be thrown through it everywhere, so they wait for
// finish_step().
void Replica::on_gradient(size_t parameter) {
  std::lock_guard lock(mutex_);
  if (!sending_ || hook_error_) return;
  try {
    require(!has_gradient_[parameter],
            "parameter '{}' got a second gradient in one step: call finish_step() and zero_grad() between two backward "
            "passes, or hold_back() before all but the last",
            flat_.slices()[parameter].name);
    take_gradient(parameter);
    launch_ready();
  } catch (...) {
    hook_error_ = current_error();
  }
}

void Replica::take_gradient(size_t parameter) {
  has_gradient_[parameter] = true;
  flat_.collect_gradient(parameter);
  --buckets_[bucket_of_[parameter]].missing;
}

// Strictly in the plan's order: ranks must begin their operations alike.
void Replica::launch_ready() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) launch(next_bucket_++);
}

void Replica::launch(size_t bucket) {
  const pattern::Range range = plan_.buckets[bucket].elements;
  const collective::FloatVector gradient(flat_.gradients().data_ptr<float>() + range.begin, range.size());
  buckets_[bucket].exchanged =
      job_.start([this, bucket, gradient](cluster::Comm& comm) { return strategy_->exchange(comm, bucket, gradient); });
}

bool Replica::finish_step() {
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < has_gradient_.size() && !hook_error_; ++i) {
      if (!has_gradient_[i]) take_gradient(i);
    }
    if (!hook_error_) launch_ready();
  }
  std::optional<size_t> bad;
  std::exception_ptr failure;
  for (size_t b = 0; b < next_bucket_; ++b) {  // all must have ended before anything is thrown: they use our buffers
    try {
      if (!wait_for(b) && !bad) bad = b;
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (hook_error_) throw *hook_error_;
  strategy_->end_step(!bad);
  if (bad && options_.non_finite == NonFinitePolicy::kError) stop_everywhere(*bad);
  return !bad;
}

// A rank that is still busy with the last messages of this step must hear the reason, not only that its peer left.
void Replica::stop_everywhere(size_t bucket) {
  const pattern::Range range = plan_.buckets[bucket].parameters;
  const Error error(
      ErrorCode::kNonFinite,
      fmt::format("a gradient holds NaN or Inf on some rank, among parameters '{}' to '{}'; all ranks stop "
                  "before the update. Lower the learning rate, or set the policy skip-step",
                  flat_.slices()[range.begin].name, flat_.slices()[range.end - 1].name));
  job_.fail_everywhere(error);
  throw error;
}

bool Replica::wait_for(size_t bucket) {
  buckets_[bucket].exchanged.get();
  const pattern::Range range = plan_.buckets[bucket].elements;
  return kernel::all_finite({flat_.gradients().data_ptr<float>() + range.begin, range.size()});
}

std::string Replica::check_equal(const std::string& when) {
  std::string digest = parameters_sha256(module_);
  job_.require_equal("parameters_sha256 " + when, digest);
  return digest;
}

}  // namespace virga::train
