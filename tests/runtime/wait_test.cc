#include "virga/runtime/wait.h"

#include <gtest/gtest.h>
#include <stdexcept>

namespace virga {
namespace {

TEST(Wait, TakesWhatTheFutureThrows) {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  promise.set_exception(std::make_exception_ptr(std::runtime_error("broken")));
  EXPECT_THROW(wait(future, nullptr, [] {}), std::runtime_error);
}

TEST(Wait, AsksAgainAndAgain) {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  int asked = 0;
  wait(
      future,
      [&] {
        if (++asked == 3) promise.set_value();
      },
      [] { FAIL() << "nobody gave up"; });
  EXPECT_EQ(asked, 3);
}

TEST(Wait, GivesUpWaitsForTheEndAndThrowsOn) {
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
  bool ended = false;
  const auto interrupt = [] { throw std::domain_error("Ctrl-C"); };
  EXPECT_THROW(wait(future, interrupt,
                    [&] {
                      ended = true;
                      promise.set_exception(std::make_exception_ptr(std::runtime_error("aborted")));
                    }),
               std::domain_error);
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace virga
