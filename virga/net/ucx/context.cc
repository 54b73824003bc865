#include "virga/net/ucx/context.h"

#include <mutex>
#include <sched.h>

#include "virga/net/ucx/status.h"

namespace virga::net::ucx {
namespace {

// Enough to drain a burst, few enough that coroutines and timers get their turn within some 100 us.
constexpr int kBatch = 16;

// How often a context that can't sleep is polled in vain, some 10 us, before it lets others have
// the core.
constexpr int kPatience = 16;

ucp_context_h open_context(const Context::Options& options) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "reading its configuration");
  for (const auto& [key, value] : options.config) {
    const ucs_status_t status = ucp_config_modify(config, key.c_str(), value.c_str());
    if (status == UCS_OK) continue;
    ucp_config_release(config);
    check(status, fmt::format("setting {}={} {}", key, value, options.name));
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  check(status, fmt::format("no transport {}", options.name));
  return context;
}

// So that tools that look for leaks take it for one by intention, as far as they can follow UCX's pointers.
void keep_for_ever(ucp_worker_h worker, ucp_context_h context) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::pair<ucp_worker_h, ucp_context_h>>;
  std::lock_guard lock(mutex);
  kept.emplace_back(worker, context);
}

}  // namespace

Context::Context(const Options& options) : errors_(options.errors), context_(open_context(options)) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENT_FD;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  params.event_fd = options.event_descriptor;
  const ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
  if (status == UCS_OK) return;
  ucp_cleanup(context_);
  check(status, fmt::format("no worker {}", options.name));
}

Context::~Context() {
  if (abandoned_) {
    keep_for_ever(worker_, context_);
  } else {
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
}

std::string Context::address() const {
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  check(ucp_worker_get_address(worker_, &address, &bytes), "no worker address");
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return copy;
}

void Context::on_message(unsigned id, ucp_am_recv_callback_t callback, void* argument) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = id;
  params.flags = UCP_AM_FLAG_WHOLE_MSG;
  params.cb = callback;
  params.arg = argument;
  check(ucp_worker_set_am_recv_handler(worker_, &params), "no active messages");
}

bool Context::progress() {
  if (halted_) return false;
  int moved = 0;
  while (moved < kBatch && ucp_worker_progress(worker_) != 0) ++moved;
  if (moved > 0) fruitless_ = 0;
  return moved > 0;
}

bool Context::arm() {
  if (halted_ || ucp_worker_arm(worker_) == UCS_OK) return true;
  // A send that waits for room in the receiver's shared memory can't sleep: nobody would wake it.
  // Where ranks outnumber cores the receiver may need this very core to make that room.
  if (++fruitless_ % kPatience == 0) sched_yield();
  return false;
}

}  // namespace virga::net::ucx
