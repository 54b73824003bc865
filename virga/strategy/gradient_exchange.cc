#include "virga/strategy/gradient_exchange.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "virga/base/hash.h"
#include "virga/kernel/elementwise.h"
#include "virga/runtime/wait.h"

namespace virga::strategy {
namespace {

std::vector<size_t> elements_of(const std::vector<Parameter>& parameters) {
  std::vector<size_t> elements;
  for (const Parameter& parameter : parameters) elements.push_back(parameter.elements);
  return elements;
}

std::string describe(const std::vector<Parameter>& parameters) {
  std::string text;
  size_t elements = 0;
  for (const Parameter& parameter : parameters) {
    text += fmt::format("{} {}\n", parameter.name, parameter.elements);
    elements += parameter.elements;
  }
  return fmt::format("{} elements in {} parameters, layout {:016x}", elements, parameters.size(), fnv1a(text));
}

std::vector<std::vector<float>> copies_of(const std::vector<Residual>& residuals) {
  std::vector<std::vector<float>> copies;
  for (const Residual& residual : residuals) copies.emplace_back(residual.values.begin(), residual.values.end());
  return copies;
}

Task<void> timed(Task<void> exchange, const Clock& clock, TimeSpan& span) {
  span.begin = clock.now();
  co_await std::move(exchange);
  span.end = clock.now();
}

}  // namespace

NonFinitePolicy parse_non_finite_policy(const std::string& text) {
  for (NonFinitePolicy policy : {NonFinitePolicy::kError, NonFinitePolicy::kSkipStep, NonFinitePolicy::kKeep}) {
    if (text == to_string(policy)) return policy;
  }
  fail(ErrorCode::kInvalidArgument, "unknown policy '{}' for non-finite gradients; known are error, skip-step, keep",
       text);
}

std::string_view to_string(NonFinitePolicy policy) {
  switch (policy) {
    case NonFinitePolicy::kError:
      return "error";
    case NonFinitePolicy::kSkipStep:
      return "skip-step";
    case NonFinitePolicy::kKeep:
      return "keep";
  }
  return "unknown";
}

GradientExchange::GradientExchange(cluster::Job& job, std::vector<Parameter> parameters, std::span<float> gradients,
                                   ExchangeOptions options)
    : job_(job), parameters_(std::move(parameters)), gradients_(gradients), options_(std::move(options)) {
  agree();  // throws on all ranks or on none, so that all count alike
  static std::atomic<uint64_t> count = 0;
  number_ = ++count;
  agree_on_plan();
  strategy_ = make_strategy();
  begin_step();
}

GradientExchange::~GradientExchange() {
  std::lock_guard lock(mutex_);
  for (std::future<void>& exchanged : exchanged_) {
    if (!exchanged.valid()) continue;
    give_up();
    exchanged.wait();
  }
}

void GradientExchange::give_up() {
  job_.fail_everywhere(
      Error(ErrorCode::kAborted, fmt::format("rank {} gave up in the middle of a step", job_.rank()), job_.rank()));
}

void GradientExchange::agree() {
  job_.require_equal("trained parameters", describe(parameters_));
  job_.require_equal("strategy", options_.strategy);
  job_.require_equal("strategy options", to_text(options_.strategy_options));
  job_.require_equal("non-finite policy", std::string(to_string(options_.non_finite)));
}

// Two replicas may have buckets of equal shape, and ranks may complete them in different orders.
uint64_t GradientExchange::purpose(size_t bucket) const { return fnv1a(fmt::format("{} {}", number_, bucket)); }

// Readiness is a matter of timing, so the plan is rank 0's, whatever the others would have planned.
void GradientExchange::agree_on_plan() {
  const std::vector<size_t> elements = elements_of(parameters_);
  const std::string own = plan::to_text(plan::plan_buckets(elements, options_.bucket_bytes));
  const auto texts = job_.exchange("bucket plan", job_.rank() == 0 ? own : "");
  plan_ = plan::parse_plan(texts[0], elements);
  require(plan_.elements == gradients_.size(), "{} parameters in gradients of {} elements", plan_.elements,
          gradients_.size());
  bucket_of_.resize(elements.size());
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const pattern::Range range = plan_.buckets[b].parameters;
    std::fill(bucket_of_.begin() + static_cast<ptrdiff_t>(range.begin),
              bucket_of_.begin() + static_cast<ptrdiff_t>(range.end), b);
  }
  exchanged_.resize(plan_.buckets.size());
  spans_.resize(plan_.buckets.size());
}

std::unique_ptr<Strategy> GradientExchange::make_strategy() const {
  return strategy::make_strategy(options_.strategy, {job_.topology(), job_.rank(), plan_, options_.strategy_options});
}

void GradientExchange::begin_step() {
  ready_.assign(parameters_.size(), false);
  missing_.clear();
  for (const plan::Bucket& bucket : plan_.buckets) missing_.push_back(bucket.parameters.size());
  next_bucket_ = 0;
}

void GradientExchange::ready(size_t parameter) {
  std::lock_guard lock(mutex_);
  require(!ready_[parameter], "parameter '{}' got a second gradient in one step", parameters_[parameter].name);
  ready_[parameter] = true;
  --missing_[bucket_of_[parameter]];
  launch_ready();
}

bool GradientExchange::forget_step() {
  std::lock_guard lock(mutex_);
  if (next_bucket_ > 0) return false;
  begin_step();
  return true;
}

// Strictly in the plan's order: ranks must begin their operations alike.
void GradientExchange::launch_ready() {
  while (next_bucket_ < missing_.size() && missing_[next_bucket_] == 0) launch(next_bucket_++);
}

void GradientExchange::launch(size_t bucket) {
  const pattern::Range range = plan_.buckets[bucket].elements;
  if (bucket == 0 && !carried_.empty()) before_ = copies_of(strategy_->residuals());
  add_carried(range);
  const collective::Vector gradient(gradients_.subspan(range.begin, range.size()));
  exchanged_[bucket] = job_.start([this, bucket, gradient](cluster::Comm& comm) {
    const cluster::Comm::Purpose mine(comm, purpose(bucket));
    return timed(strategy_->exchange(comm, bucket, gradient), comm.loop().clock(), spans_[bucket]);
  });
}

void GradientExchange::carry_over(size_t begin, std::vector<float> values) {
  require(begin <= gradients_.size() && values.size() <= gradients_.size() - begin,
          "elements {} to {} can't be added to gradients of {}", begin, begin + values.size(), gradients_.size());
  carried_.push_back({begin, std::move(values)});
}

std::vector<Residual> GradientExchange::carried() const {
  std::vector<Residual> residuals;
  for (const Carried& carried : carried_) residuals.push_back({carried.begin, carried.values});
  return residuals;
}

void GradientExchange::add_carried(pattern::Range range) {
  for (const Carried& carried : carried_) {
    const size_t begin = std::max(range.begin, carried.begin);
    const size_t end = std::min(range.end, carried.begin + carried.values.size());
    if (begin >= end) continue;
    const std::span<const float> part = std::span(carried.values).subspan(begin - carried.begin, end - begin);
    std::vector<float> share(part.begin(), part.end());
    kernel::scale(share, static_cast<float>(job_.world_size()));
    kernel::add(gradients_.subspan(begin, end - begin), share);
  }
}

// A step that is skipped may have taken what is carried into some residuals, here or elsewhere, and dropped it where
// NaN or Inf was. So all of it is undone, and what is carried waits on.
void GradientExchange::end_step(bool applied) {
  strategy_->end_step(applied);
  if (carried_.empty()) return;
  if (applied) {
    carried_.clear();
  } else {
    strategy_->set_residuals(before_);
  }
}

bool GradientExchange::finish(const std::function<void()>& while_waiting) {
  std::lock_guard lock(mutex_);
  std::optional<size_t> bad;
  std::exception_ptr failure;
  for (size_t b = 0; b < next_bucket_; ++b) {  // all must have ended before anything is thrown: they use our memory
    try {
      if (!wait_for(b, while_waiting) && !bad) bad = b;
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  const size_t waited = next_bucket_;
  begin_step();
  if (failure) std::rethrow_exception(failure);
  require(waited == plan_.buckets.size(), "{} of {} buckets were not complete at the end of the step",
          plan_.buckets.size() - waited, plan_.buckets.size());
  end_step(!bad);
  if (bad && options_.non_finite == NonFinitePolicy::kError) stop_everywhere(*bad);
  return !bad;
}

// A rank that is still busy with the last messages of this step must hear the reason, not only that its peer left.
void GradientExchange::stop_everywhere(size_t bucket) {
  const pattern::Range range = plan_.buckets[bucket].parameters;
  const Error error(ErrorCode::kNonFinite,
                    fmt::format("a gradient holds NaN or Inf on some rank, among parameters '{}' to '{}'; all ranks "
                                "stop before the update. Lower the learning rate, or set the policy skip-step",
                                parameters_[range.begin].name, parameters_[range.end - 1].name));
  job_.fail_everywhere(error);
  throw error;
}

// An exception of `while_waiting` ends the job; then the bucket ends, too.
bool GradientExchange::wait_for(size_t bucket, const std::function<void()>& while_waiting) {
  std::future<void> exchanged = std::move(exchanged_[bucket]);
  wait(exchanged, while_waiting, [this] { give_up(); });
  const pattern::Range range = plan_.buckets[bucket].elements;
  return kernel::all_finite(gradients_.subspan(range.begin, range.size()));
}

void GradientExchange::set_strategy(const std::string& name, const StrategyOptions& options) {
  std::lock_guard lock(mutex_);
  require(next_bucket_ == 0 && std::ranges::find(ready_, true) == ready_.end(),
          "the strategy can't change in the middle of a step");
  ExchangeOptions changed = options_;
  changed.strategy = name;
  changed.strategy_options = options;
  std::swap(options_, changed);
  try {
    agree();
    std::unique_ptr<Strategy> next = make_strategy();
    for (const Residual& residual : strategy_->residuals()) {
      carry_over(residual.begin, {residual.values.begin(), residual.values.end()});
    }
    strategy_ = std::move(next);
  } catch (...) {
    std::swap(options_, changed);
    throw;
  }
}

void GradientExchange::set_residuals(const std::vector<std::vector<float>>& values) {
  strategy_->set_residuals(values);
}

}  // namespace virga::strategy
