#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "virga/runtime/loop.h"
#include "virga/runtime/task.h"

namespace virga {

// Where heavy work on elements goes so that the loop stays free for messages and heartbeats. The cost is stated as
// the bytes of memory that the work reads and writes: the simulator charges time for it.
class Worker {
 public:
  virtual ~Worker() = default;
  // Runs `work`; resumes on the loop when it has ended and throws what it threw.
  virtual Task<void> run(size_t bytes_touched, std::function<void()> work) = 0;
  // Whether work of that size would be done on the loop, at no other cost than its own.
  virtual bool stays_on_loop(size_t bytes_touched) const = 0;
};

// The real one: one thread. Work that touches little (under about 200 us) stays on the loop, since two thread
// switches would cost more.
class ThreadWorker final : public Worker {
 public:
  explicit ThreadWorker(Loop& loop);
  ~ThreadWorker() override;

  Task<void> run(size_t bytes_touched, std::function<void()> work) override;
  bool stays_on_loop(size_t bytes_touched) const override;

 private:
  void serve();
  void enqueue(std::function<void()> job);

  Loop& loop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace virga
