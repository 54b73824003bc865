#pragma once

#include <functional>
#include <future>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "virga/runtime/loop.h"

namespace virga {

// A loop on a thread of its own: how training code, which blocks, hands work to the runtime and goes on.
class LoopThread {
 public:
  LoopThread();
  // Waits for every started task to end (each has its deadlines), then stops the thread.
  ~LoopThread();

  Loop& loop() { return loop_; }

  // Any thread. Calls `make` on the loop's thread and runs the task it returns; the future gets the end or the error.
  // Tasks begin in the order of the calls.
  std::future<void> start(std::function<Task<void>()> make);

  // Waits until no started task runs.
  void drain();

  // Runs `call` on the loop's thread and waits for it.
  void call(std::function<void()> call);

 private:
  Task<void> supervise(std::function<Task<void>()> make, std::shared_ptr<std::promise<void>> promise,
                       std::list<Task<void>>::iterator self);
  void forget(std::list<Task<void>>::iterator task);
  void begin(std::function<Task<void>()> make, std::shared_ptr<std::promise<void>> promise);

  SteadyClock clock_;
  Loop loop_;
  std::list<Task<void>> tasks_;
  std::vector<std::promise<void>> drains_;  // who waits for tasks_ to be empty
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace virga
