#pragma once

#include <coroutine>
#include <exception>
#include <list>
#include <utility>
#include <vector>

#include "virga/base/error.h"
#include "virga/runtime/cancel.h"
#include "virga/runtime/event.h"
#include "virga/runtime/task.h"

namespace virga {

// Tasks that run side by side and end together. The first failure cancels the scope (if one was given) so that the
// others give up soon; join() waits for all of them and then throws that first failure. Nothing outlives join().
class TaskGroup {
 public:
  explicit TaskGroup(CancelScope* scope = nullptr) : scope_(scope) {}
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  void start(Task<void> task) {
    ++running_;
    children_.push_back(supervise(std::move(task)));
    children_.back().start();
  }

  Task<void> join() {
    if (running_ > 0) {
      joining_ = true;
      co_await all_done_;
    }
    if (first_error_) std::rethrow_exception(std::exchange(first_error_, nullptr));
  }

 private:
  Task<void> supervise(Task<void> task) {
    try {
      co_await std::move(task);
    } catch (...) {
      if (!first_error_) first_error_ = std::current_exception();
      if (scope_) scope_->cancel(current_error());
    }
    if (--running_ == 0 && joining_) all_done_.set();
  }

  CancelScope* scope_;
  std::list<Task<void>> children_;
  size_t running_ = 0;
  bool joining_ = false;
  Event all_done_;
  std::exception_ptr first_error_;
};

// Runs all tasks at once and waits for all of them; throws the first failure after the last has ended.
inline Task<void> when_all(std::vector<Task<void>> tasks, CancelScope* scope = nullptr) {
  TaskGroup group(scope);
  for (Task<void>& task : tasks) group.start(std::move(task));
  co_await group.join();
}

inline Task<void> when_both(Task<void> first, Task<void> second, CancelScope* scope = nullptr) {
  TaskGroup group(scope);
  group.start(std::move(first));
  group.start(std::move(second));
  co_await group.join();
}

}  // namespace virga
