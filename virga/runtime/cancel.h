#pragma once

#include <functional>
#include <list>
#include <optional>
#include <utility>

#include "virga/base/error.h"

namespace virga {

// One operation's way to be given up from outside: an abort of the job, a failed sibling. Whoever waits registers
// what to do; `cancel` runs all of it once, with the reason. Loop thread only.
class CancelScope {
 public:
  using Callback = std::function<void(const Error&)>;
  using Registration = std::list<Callback>::iterator;

  CancelScope() = default;
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  const std::optional<Error>& reason() const { return reason_; }
  void throw_if_cancelled() const {
    if (reason_) throw *reason_;
  }

  // The first reason wins; later calls change nothing. A callback may remove itself or others.
  void cancel(const Error& reason) {
    if (reason_) return;
    reason_ = reason;
    while (!callbacks_.empty()) {
      Callback callback = std::move(callbacks_.front());
      callbacks_.front() = nullptr;
      fired_.splice(fired_.end(), callbacks_, callbacks_.begin());
      callback(reason);
    }
  }

  Registration add(Callback callback) {
    callbacks_.push_back(std::move(callback));
    return std::prev(callbacks_.end());
  }
  // Fine before, during and after cancel().
  void remove(Registration registration) { (reason_ && !*registration ? fired_ : callbacks_).erase(registration); }

 private:
  std::list<Callback> callbacks_;
  std::list<Callback> fired_;  // keeps iterators valid for remove()
  std::optional<Error> reason_;
};

}  // namespace virga
