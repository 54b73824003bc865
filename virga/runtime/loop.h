#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "virga/runtime/clock.h"
#include "virga/runtime/task.h"

namespace virga {

// Something that the loop drives besides coroutines: a transport's worker. All calls come from the loop's thread.
class Source {
 public:
  virtual ~Source() = default;
  // Makes whatever progress it can; true if there was some. Callbacks may only enqueue.
  virtual bool progress() = 0;
  // A descriptor that becomes readable when there may be progress, for epoll; -1 if there is none.
  virtual int descriptor() const = 0;
  // Prepares the descriptor for a sleep; false if there is something to do right now.
  virtual bool arm() = 0;
  // Whether operations are outstanding, so that a short spin may pay.
  virtual bool busy() const = 0;
};

// The event loop: one ready queue, timers, sources, one clock. It belongs to the thread that runs it; only
// `post` may be called from others. Sleeps on a single epoll when there is nothing to do.
class Loop {
 public:
  using TimerKey = std::pair<Time, uint64_t>;

  explicit Loop(Clock& clock);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Clock& clock() { return clock_; }
  Time now() const { return clock_.now(); }
  // The loop that is running on this thread; null outside run().
  static Loop* current();

  // Runs the loop until `task` is done; returns its result or throws its exception. In a virtual world that
  // stands still (nothing ready, no timer) it throws kDeadlineExceeded instead of hanging.
  template <class T>
  T run(Task<T> task) {
    drive(task_starter(task), [&] { return task.done(); });
    return task.take();
  }
  // Runs until `finished` returns true; it is asked after every turn.
  void run_until(const std::function<bool()>& finished) { drive({}, finished); }

  // Loop thread only.
  void enqueue(std::coroutine_handle<> handle) { ready_.push_back(handle); }
  TimerKey call_at(Time time, std::function<void()> callback);
  void cancel(TimerKey timer) { timers_.erase(timer); }
  void add_source(Source& source);
  void remove_source(Source& source);

  // While one lives, the loop waits awake: a sleep may last a millisecond longer than until the next timer.
  class Awake {
   public:
    explicit Awake(Loop& loop) : loop_(loop) { ++loop_.awake_; }
    ~Awake() { --loop_.awake_; }
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

   private:
    Loop& loop_;
  };

  // Any thread: runs `callback` on the loop and wakes it.
  void post(std::function<void()> callback);

 private:
  template <class T>
  static std::function<void()> task_starter(Task<T>& task) {
    return [&task] { task.start(); };
  }
  void drive(const std::function<void()>& begin, const std::function<bool()>& finished);
  bool turn();
  bool resume_ready();
  bool run_posted();
  bool fire_timers();
  bool progress_sources();
  void idle();
  bool spin();
  void sleep();

  Clock& clock_;
  std::deque<std::coroutine_handle<>> ready_;
  std::map<TimerKey, std::function<void()>> timers_;  // ordered by time, then by registration: deterministic
  uint64_t next_timer_ = 0;
  std::vector<Source*> sources_;
  int awake_ = 0;
  int epoll_ = -1;
  int wake_ = -1;  // eventfd

  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
  std::atomic<bool> has_posted_{false};
};

// co_await sleep_until(time): resumes through the loop at that time.
struct SleepUntil {
  Time time;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) const {
    Loop* loop = Loop::current();
    loop->call_at(time, [loop, handle] { loop->enqueue(handle); });
  }
  void await_resume() const {}
};
inline SleepUntil sleep_until(Time time) { return SleepUntil{time}; }

}  // namespace virga
