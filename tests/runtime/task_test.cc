#include "virga/runtime/task.h"

#include <gtest/gtest.h>
#include <stdexcept>
#include <string>

#include "virga/runtime/loop.h"
#include "virga/runtime/task_group.h"

namespace virga {
namespace {

using namespace std::chrono_literals;

Task<int> add_later(int a, int b) {
  co_await sleep_until(Loop::current()->now() + 1ms);
  co_return a + b;
}

Task<int> count_up(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum = co_await add_later(sum, 1);
  co_return sum;
}

Task<void> throw_after(Duration delay, std::string what) {
  co_await sleep_until(Loop::current()->now() + delay);
  throw std::runtime_error(what);
}

class TaskTest : public ::testing::Test {
 protected:
  VirtualClock clock_;
  Loop loop_{clock_};
};

TEST_F(TaskTest, ReturnsItsValueInVirtualTime) {
  EXPECT_EQ(loop_.run(count_up(1000)), 1000);
  EXPECT_EQ(clock_.now(), 1s);
}

Task<int> immediate(int value) { co_return value; }

Task<int> many_immediate(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += co_await immediate(1);
  co_return sum;
}

// A million tasks that end at once must not grow the stack.
TEST_F(TaskTest, FinishedTasksDoNotNest) { EXPECT_EQ(loop_.run(many_immediate(1'000'000)), 1'000'000); }

TEST_F(TaskTest, ThrowsWhereItIsAwaited) { EXPECT_THROW(loop_.run(throw_after(1ms, "x")), std::runtime_error); }

TEST_F(TaskTest, StandstillIsAnErrorNotAHang) {
  Event never;
  const auto wait = [](Event& event) -> Task<void> { co_await event; };
  try {
    loop_.run(wait(never));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  }
}

Task<void> note(std::string& log, char name, Duration delay) {
  co_await sleep_until(Loop::current()->now() + delay);
  log += name;
}

TEST_F(TaskTest, GroupRunsSideBySide) {
  std::string log;
  std::vector<Task<void>> tasks;
  tasks.push_back(note(log, 'c', 3ms));
  tasks.push_back(note(log, 'a', 1ms));
  tasks.push_back(note(log, 'b', 2ms));
  loop_.run(when_all(std::move(tasks)));
  EXPECT_EQ(log, "abc");
  EXPECT_EQ(clock_.now(), 3ms);
}

TEST_F(TaskTest, GroupWaitsForAllAndThrowsTheFirst) {
  std::string log;
  CancelScope scope;
  std::vector<Task<void>> tasks;
  tasks.push_back(throw_after(2ms, "second"));
  tasks.push_back(throw_after(1ms, "first"));
  tasks.push_back(note(log, 'z', 9ms));
  try {
    loop_.run(when_all(std::move(tasks), &scope));
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(log, "z");
  ASSERT_TRUE(scope.reason().has_value());
  EXPECT_STREQ(scope.reason()->what(), "first");
}

TEST(CancelScope, FirstReasonWinsAndRemoveIsAlwaysFine) {
  CancelScope scope;
  int calls = 0;
  const auto first = scope.add([&](const Error&) { ++calls; });
  CancelScope::Registration second;
  second = scope.add([&](const Error&) { ++calls; });
  scope.cancel(Error(ErrorCode::kAborted, "one"));
  scope.cancel(Error(ErrorCode::kCancelled, "two"));
  scope.remove(first);
  scope.remove(second);
  EXPECT_EQ(calls, 2);
  EXPECT_STREQ(scope.reason()->what(), "one");
}

}  // namespace
}  // namespace virga
