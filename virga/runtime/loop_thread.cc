#include "virga/runtime/loop_thread.h"

#include <pthread.h>
#include <utility>

namespace virga {

LoopThread::LoopThread()
    : loop_(clock_), thread_([this] { loop_.run_until([this] { return stopping_ && tasks_.empty(); }); }) {
  pthread_setname_np(thread_.native_handle(), "virga-loop");
}

LoopThread::~LoopThread() {
  loop_.post([this] { stopping_ = true; });
  thread_.join();
}

std::future<void> LoopThread::start(std::function<Task<void>()> make) {
  auto promise = std::make_shared<std::promise<void>>();
  std::future<void> future = promise->get_future();
  loop_.post([this, make = std::move(make), promise]() mutable { begin(std::move(make), promise); });
  return future;
}

void LoopThread::drain() {
  std::promise<void> drained;
  std::future<void> done = drained.get_future();
  call([&] {
    if (tasks_.empty()) {
      drained.set_value();
    } else {
      drains_.push_back(std::move(drained));
    }
  });
  done.get();
}

void LoopThread::call(std::function<void()> call) {
  std::promise<void> done;
  loop_.post([&] {
    try {
      call();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

void LoopThread::forget(std::list<Task<void>>::iterator task) {
  tasks_.erase(task);
  if (!tasks_.empty()) return;
  for (std::promise<void>& drained : std::exchange(drains_, {})) drained.set_value();
}

void LoopThread::begin(std::function<Task<void>()> make, std::shared_ptr<std::promise<void>> promise) {
  const auto self = tasks_.emplace(tasks_.end());
  *self = supervise(std::move(make), std::move(promise), self);
  self->start();
}

Task<void> LoopThread::supervise(std::function<Task<void>()> make, std::shared_ptr<std::promise<void>> promise,
                                 std::list<Task<void>>::iterator self) {
  std::exception_ptr error;
  try {
    co_await make();
  } catch (...) {
    error = std::current_exception();
  }
  // This frame can't destroy itself: the loop does it once the frame is suspended for good.
  loop_.call_at(loop_.now(), [this, self] { forget(self); });
  if (error) {
    promise->set_exception(error);
  } else {
    promise->set_value();
  }
}

}  // namespace virga
