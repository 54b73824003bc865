#include "virga/runtime/loop.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga {
namespace {

thread_local Loop* current_loop = nullptr;

// How long to look for messages before a sleep, from which a virtual machine takes longer to wake than many of them
// travel.
constexpr Duration kSpin = std::chrono::microseconds(300);

void watch(int epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    fail(ErrorCode::kUnavailable, "epoll refuses a descriptor: {}", std::strerror(errno));
  }
}

}  // namespace

void enqueue_ready(std::coroutine_handle<> handle) { current_loop->enqueue(handle); }

Loop* Loop::current() { return current_loop; }

Loop::Loop(Clock& clock) : clock_(clock) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_ < 0 || wake_ < 0) {
    fail(ErrorCode::kUnavailable, "the event loop gets no descriptors: {}", std::strerror(errno));
  }
  watch(epoll_, wake_);
}

Loop::~Loop() {
  close(wake_);
  close(epoll_);
}

Loop::TimerKey Loop::call_at(Time time, std::function<void()> callback) {
  const TimerKey key{time, next_timer_++};
  timers_.emplace(key, std::move(callback));
  return key;
}

void Loop::add_source(Source& source) {
  sources_.push_back(&source);
  if (source.descriptor() >= 0) watch(epoll_, source.descriptor());
}

void Loop::remove_source(Source& source) {
  std::erase(sources_, &source);
  if (source.descriptor() >= 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, source.descriptor(), nullptr);
}

void Loop::post(std::function<void()> callback) {
  {
    std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(callback));
    has_posted_.store(true, std::memory_order_release);
  }
  const uint64_t one = 1;
  [[maybe_unused]] auto written = write(wake_, &one, sizeof one);  // full counter: it is awake anyway
}

void Loop::drive(const std::function<void()>& begin, const std::function<bool()>& finished) {
  Loop* const outer = std::exchange(current_loop, this);
  struct Restore {
    Loop* outer;
    ~Restore() { current_loop = outer; }
  } restore{outer};
  if (begin) begin();
  while (!finished()) {
    if (!turn()) idle();
  }
}

bool Loop::turn() {
  bool worked = resume_ready();
  worked |= run_posted();
  worked |= fire_timers();
  worked |= progress_sources();
  return worked;
}

// Only what was ready when the turn began: a coroutine that always becomes ready again can't starve the sources.
bool Loop::resume_ready() {
  size_t count = ready_.size();
  const bool worked = count > 0;
  while (count-- > 0) {
    const std::coroutine_handle<> handle = ready_.front();
    ready_.pop_front();
    handle.resume();
  }
  return worked;
}

bool Loop::run_posted() {
  if (!has_posted_.load(std::memory_order_acquire)) return false;
  std::vector<std::function<void()>> batch;
  {
    std::lock_guard lock(posted_mutex_);
    batch.swap(posted_);
    has_posted_.store(false, std::memory_order_release);
  }
  for (auto& callback : batch) callback();
  return !batch.empty();
}

bool Loop::fire_timers() {
  bool fired = false;
  const Time now = clock_.now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    node.mapped()();
    fired = true;
  }
  return fired;
}

bool Loop::progress_sources() {
  bool worked = false;
  for (size_t i = 0; i < sources_.size(); ++i) worked |= sources_[i]->progress();
  return worked;
}

void Loop::idle() {
  if (!timers_.empty() && clock_.advance_to(timers_.begin()->first.first)) return;
  if (timers_.empty() && clock_.advance_to(clock_.now())) {
    fail(ErrorCode::kDeadlineExceeded,
         "the virtual world stands still at {:.6f} s: every task waits and no event is due", to_seconds(clock_.now()));
  }
  if (!spin() && awake_ == 0) sleep();
}

bool Loop::spin() {
  const bool busy = std::any_of(sources_.begin(), sources_.end(), [](Source* s) { return s->busy(); });
  if (!busy && awake_ == 0) return false;
  Time end = clock_.now() + kSpin;
  if (!timers_.empty()) end = std::min(end, timers_.begin()->first.first);
  do {
    if (progress_sources() || !ready_.empty()) return true;
    if (has_posted_.load(std::memory_order_acquire)) return true;
    sched_yield();  // whoever computes has the core first
  } while (clock_.now() < end);
  return false;
}

void Loop::sleep() {
  for (Source* source : sources_) {
    if (!source->arm()) return;
  }
  int timeout_ms = -1;
  if (!timers_.empty()) {
    const Duration left = timers_.begin()->first.first - clock_.now();
    if (left <= Duration::zero()) return;
    timeout_ms =
        static_cast<int>(std::min<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 3'600'000));
  }
  epoll_event events[8];
  const int count = epoll_wait(epoll_, events, 8, timeout_ms);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd != wake_) continue;
    uint64_t drained;
    [[maybe_unused]] auto bytes = read(wake_, &drained, sizeof drained);
  }
}

}  // namespace virga
