#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "virga/runtime/ready.h"

namespace virga {

template <class T = void>
class Task;

namespace detail {

// What promises of every result type share: how a task starts lazily and how it hands control back. The awaiting
// coroutine goes through the loop's ready queue, never by symmetric transfer: g++ makes that a tail call only from
// -O2 upwards and never under sanitizers, and a long chain of finished tasks would exhaust the stack.
class PromiseBase {
 public:
  std::suspend_always initial_suspend() noexcept { return {}; }

  struct FinalAwaiter {
    bool await_ready() noexcept { return false; }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> self) noexcept {
      if (auto continuation = self.promise().continuation_) enqueue_ready(continuation);
    }
    void await_resume() noexcept {}
  };
  FinalAwaiter final_suspend() noexcept { return {}; }

  void unhandled_exception() { error_ = std::current_exception(); }
  void rethrow() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  std::coroutine_handle<> continuation_;
  std::exception_ptr error_;
};

template <class T>
class Promise : public PromiseBase {
 public:
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T take() {
    rethrow();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <>
class Promise<void> : public PromiseBase {
 public:
  Task<void> get_return_object();
  void return_void() {}
  void take() { rethrow(); }
};

}  // namespace detail

// A coroutine that starts when it is awaited and throws where it is awaited. Move-only; it must be awaited to its
// end (there is no detached task): destroying a suspended one would pull buffers from under the transport.
//
// House rules: parameters by value or owned by somebody who outlives the task; no co_await inside a catch block;
// no temporary aggregate inside a co_await expression (g++ 12.2 destroys it twice).
template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  explicit operator bool() const { return static_cast<bool>(handle_); }
  bool done() const { return handle_.done(); }

  // Runs until the first suspension. For Loop::run and TaskGroup; everybody else awaits.
  void start() { handle_.resume(); }
  // The result of a task that is done, or its exception.
  T take() { return handle_.promise().take(); }

  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      bool await_ready() noexcept { return false; }
      void await_suspend(std::coroutine_handle<> continuation) {
        handle.promise().continuation_ = continuation;
        handle.resume();
      }
      T await_resume() { return handle.promise().take(); }
    };
    return Awaiter{handle_};
  }

 private:
  Handle handle_;
};

namespace detail {

template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}

inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

}  // namespace detail
}  // namespace virga
