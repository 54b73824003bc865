#include "virga/runtime/loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>
#include <time.h>

#include "virga/base/error.h"
#include "virga/runtime/event.h"
#include "virga/runtime/loop_thread.h"
#include "virga/runtime/worker.h"

namespace virga {
namespace {

using namespace std::chrono_literals;

TEST(Loop, PostWakesFromAnotherThread) {
  SteadyClock clock;
  Loop loop(clock);
  bool ran = false;
  std::thread other([&] { loop.post([&] { ran = true; }); });
  loop.run_until([&] { return ran; });
  other.join();
  EXPECT_TRUE(ran);
}

TEST(Loop, EqualTimersFireInOrderOfRegistration) {
  VirtualClock clock;
  Loop loop(clock);
  std::string log;
  loop.call_at(2ms, [&] { log += 'c'; });
  loop.call_at(1ms, [&] { log += 'a'; });
  loop.call_at(1ms, [&] { log += 'b'; });
  loop.run_until([&] { return log.size() == 3; });
  EXPECT_EQ(log, "abc");
}

TEST(Loop, CancelledTimerStaysSilent) {
  VirtualClock clock;
  Loop loop(clock);
  bool rang = false, end = false;
  const auto timer = loop.call_at(1ms, [&] { rang = true; });
  loop.call_at(2ms, [&] { end = true; });
  loop.cancel(timer);
  loop.run_until([&] { return end; });
  EXPECT_FALSE(rang);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The bar is 0.5 % of a core for an idle process.
TEST(Loop, IdleCostsNothing) {
  LoopThread thread;
  const double before = cpu_seconds();
  thread.start([&]() -> Task<void> { co_await sleep_until(Loop::current()->now() + 1s); }).get();
  EXPECT_LT(cpu_seconds() - before, 0.005);
}

TEST(LoopThread, HandsBackErrors) {
  LoopThread thread;
  auto future = thread.start([]() -> Task<void> {
    fail(ErrorCode::kCorrupt, "bad {}", 7);
    co_return;
  });
  EXPECT_THROW(future.get(), Error);
}

TEST(LoopThread, WaitsForRunningTasksAtTheEnd) {
  bool ended = false;
  {
    LoopThread thread;
    auto future = thread.start([&]() -> Task<void> {
      co_await sleep_until(Loop::current()->now() + 20ms);
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

TEST(ThreadWorker, HeavyWorkRunsElsewhereLightWorkHere) {
  LoopThread thread;
  ThreadWorker worker(thread.loop());
  std::thread::id loop_id, heavy_id, light_id;
  thread
      .start([&]() -> Task<void> {
        loop_id = std::this_thread::get_id();
        co_await worker.run(64 << 20, [&] { heavy_id = std::this_thread::get_id(); });
        co_await worker.run(64, [&] { light_id = std::this_thread::get_id(); });
        EXPECT_EQ(std::this_thread::get_id(), loop_id);
      })
      .get();
  EXPECT_EQ(light_id, loop_id);
  EXPECT_NE(heavy_id, loop_id);
}

TEST(ThreadWorker, ThrowsWhatTheWorkThrew) {
  LoopThread thread;
  ThreadWorker worker(thread.loop());
  auto future = thread.start(
      [&]() -> Task<void> { co_await worker.run(64 << 20, [] { fail(ErrorCode::kCorrupt, "from the worker"); }); });
  EXPECT_THROW(future.get(), Error);
}

}  // namespace
}  // namespace virga
