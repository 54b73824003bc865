#pragma once

#include <coroutine>

#include "virga/runtime/ready.h"

namespace virga {

// A flag that one coroutine waits for. Setting it enqueues the waiter; it stays set.
class Event {
 public:
  bool is_set() const { return set_; }

  void set() {
    if (set_) return;
    set_ = true;
    if (waiter_) enqueue_ready(waiter_);
  }

  auto operator co_await() {
    struct Awaiter {
      Event& event;
      bool await_ready() const { return event.set_; }
      void await_suspend(std::coroutine_handle<> handle) { event.waiter_ = handle; }
      void await_resume() const {}
    };
    return Awaiter{*this};
  }

 private:
  bool set_ = false;
  std::coroutine_handle<> waiter_;
};

}  // namespace virga
