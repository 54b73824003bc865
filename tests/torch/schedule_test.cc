#include "virga/torch/schedule.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "virga/base/error.h"

namespace virga::train {
namespace {

TEST(Schedule, WarmsUpThenFallsAsACosine) {
  const Schedule schedule{0.4, 4, 12};
  EXPECT_DOUBLE_EQ(schedule.rate(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.rate(3), 0.4);
  EXPECT_DOUBLE_EQ(schedule.rate(4), 0.4);
  EXPECT_DOUBLE_EQ(schedule.rate(6), 0.2 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(schedule.rate(8), 0.2);
  EXPECT_DOUBLE_EQ(schedule.rate(12), 0);
  EXPECT_DOUBLE_EQ(schedule.rate(1000), 0);
}

TEST(Schedule, WithoutWarmUpOrEnd) {
  EXPECT_DOUBLE_EQ((Schedule{0.4, 0, 12}.rate(0)), 0.4);
  EXPECT_DOUBLE_EQ((Schedule{0.4, 2, std::nullopt}.rate(0)), 0.2);
  EXPECT_DOUBLE_EQ((Schedule{0.4, 2, std::nullopt}.rate(1'000'000)), 0.4);
  EXPECT_DOUBLE_EQ((Schedule{0.4, 3, 3}.rate(2)), 0.4);
  EXPECT_DOUBLE_EQ((Schedule{0.4, 3, 3}.rate(3)), 0);
}

TEST(Schedule, WrongValues) {
  EXPECT_NO_THROW((Schedule{0.1, 3, 3}.validate()));
  EXPECT_THROW((Schedule{-0.1, 0, std::nullopt}.validate()), Error);
  EXPECT_THROW((Schedule{std::numeric_limits<double>::quiet_NaN(), 0, std::nullopt}.validate()), Error);
  EXPECT_THROW((Schedule{0.1, -1, std::nullopt}.validate()), Error);
  EXPECT_THROW((Schedule{0.1, 4, 3}.validate()), Error);
}

}  // namespace
}  // namespace virga::train
