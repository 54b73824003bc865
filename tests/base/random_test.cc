#include "virga/base/random.h"

#include <gtest/gtest.h>

namespace virga {
namespace {

// Known-answer vectors published with Random123 for philox4x32-10: (counter, key) -> block.
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, StreamsDifferAndReplay) {
  Random a(1, 0), b(1, 1), again(1, 0);
  for (int i = 0; i < 100; ++i) {
    const uint64_t draw = a();
    EXPECT_EQ(draw, again());
    EXPECT_NE(draw, b());
  }
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Random random(7);
  std::array<int, 5> seen{};
  for (int i = 0; i < 1000; ++i) ++seen[random.below(5)];
  for (int count : seen) EXPECT_GT(count, 120);
}

TEST(Random, NormalHasUnitVariance) {
  Random random(3);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 100000, 0, 0.02);
  EXPECT_NEAR(squares / 100000, 1, 0.02);
}

}  // namespace
}  // namespace virga
