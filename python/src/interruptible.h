#pragma once

#include <memory>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga::python {

// Lets Ctrl-C through: called now and then while C++ waits without the interpreter's lock.
inline void check_signals() {
  pybind11::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

// Deletes only in the process that made the object: a forked child (a DataLoader's worker) has a copy of the memory,
// but none of the threads that the destructor would wait for. Waits without the interpreter's lock.
template <class T>
class OwnProcess {
 public:
  explicit OwnProcess(std::unique_ptr<T> object) : object_(std::move(object)), process_(getpid()) {}
  ~OwnProcess() { reset(); }
  OwnProcess(const OwnProcess&) = delete;
  OwnProcess& operator=(const OwnProcess&) = delete;

  // Throws kUnavailable after reset() and in a forked child.
  T& operator*() const {
    if (getpid() != process_) {
      fail(ErrorCode::kUnavailable, "this process was forked from a rank: only the rank itself can communicate");
    }
    if (!object_) fail(ErrorCode::kUnavailable, "the job has ended: virga.shutdown() was called");
    return *object_;
  }
  T* operator->() const { return &**this; }

  void reset() {
    if (getpid() != process_) {
      static_cast<void>(object_.release());
    } else if (object_) {
      pybind11::gil_scoped_release unlock;
      object_.reset();
    }
  }

 private:
  std::unique_ptr<T> object_;
  const pid_t process_;
};

}  // namespace virga::python
