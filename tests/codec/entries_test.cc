#include "virga/codec/entries.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "virga/base/random.h"

namespace virga::codec {
namespace {

Entries random_entries(uint64_t seed, size_t count, uint32_t below) {
  Random random(seed);
  std::map<uint32_t, float> drawn;
  while (drawn.size() < count) drawn[static_cast<uint32_t>(random.below(below))] = static_cast<float>(random.normal());
  Entries entries;
  for (const auto& [index, value] : drawn) entries.add(index, value);
  return entries;
}

std::vector<double> dense(const Entries& entries, size_t n) {
  std::vector<double> all(n);
  for (size_t i = 0; i < entries.size(); ++i) all[entries.indices[i]] += entries.values[i];
  return all;
}

TEST(Entries, SumHoldsTheEntriesOfBoth) {
  for (size_t count : {0, 1, 10, 60}) {
    const Entries a = random_entries(1, count, 100), b = random_entries(2, 30, 100), both = sum(a, b);
    for (size_t i = 1; i < both.size(); ++i) ASSERT_LT(both.indices[i - 1], both.indices[i]);
    const std::vector<double> left = dense(a, 100), right = dense(b, 100), all = dense(both, 100);
    for (size_t i = 0; i < 100; ++i) EXPECT_EQ(all[i], static_cast<float>(left[i]) + static_cast<float>(right[i]));
  }
}

TEST(Entries, AnIndexOfBothStandsOnceThoughItsValuesCancel) {
  Entries a, b;
  a.add(7, 1.5f);
  b.add(7, -1.5f);
  EXPECT_EQ(sum(a, b).indices, std::vector<uint32_t>{7});
}

// Every length around the blocks that they are looked for in, from none that are zero to all.
TEST(Entries, NonzeroFindsWhatIsNotZero) {
  Random random(4);
  for (size_t n : {0, 1, 7, 2047, 2048, 2049, 10'000}) {
    for (double share : {0.0, 0.01, 0.5, 1.0}) {
      std::vector<float> values(n);
      Entries expected;
      for (size_t i = 0; i < n; ++i) {
        values[i] = random.uniform() < share ? static_cast<float>(random.normal()) : (i % 2 == 0 ? 0.0f : -0.0f);
        if (i % 97 == 96) values[i] = i % 2 == 0 ? INFINITY : 1e-45f;
        if (values[i] != 0) expected.add(static_cast<uint32_t>(1000 + i), values[i]);
      }
      const Entries found = nonzero(values, 1000);
      EXPECT_EQ(found.indices, expected.indices) << n;
      EXPECT_EQ(found.values, expected.values) << n;
    }
  }
  EXPECT_EQ(nonzero(std::vector<float>{0, NAN, 0}).indices, std::vector<uint32_t>{1});
}

// What is kept and what is taken away make what was there, to the bit; what is kept is largest.
TEST(Entries, NothingIsLostWhereTheLargestAreKept) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const Entries before = random_entries(3, 500, 10'000);
    Entries kept = before;
    const std::optional<Entries> rest = keep_largest(kept, 40, dtype);
    ASSERT_TRUE(rest);
    ASSERT_EQ(kept.size(), 40u);
    const std::vector<double> was = dense(before, 10'000), is = dense(kept, 10'000), away = dense(*rest, 10'000);
    for (size_t i = 0; i < was.size(); ++i) ASSERT_EQ(is[i] + away[i], was[i]);
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < was.size(); ++i) {
      if (is[i] != 0) least = std::min(least, std::fabs(was[i]));
      if (is[i] == 0) most = std::max(most, std::fabs(was[i]));
    }
    EXPECT_GE(least, most);
  }
}

TEST(Entries, AmongEqualsTheLowestIndicesAreKept) {
  Entries entries;
  for (uint32_t index : {3, 5, 8, 13}) entries.add(index, index == 13 ? -2.0f : 1.0f);
  keep_largest(entries, 3, DType::kFloat32);
  EXPECT_EQ(entries.indices, (std::vector<uint32_t>{3, 5, 13}));
}

TEST(Entries, NonFiniteValuesChangeNothing) {
  for (float bad : {NAN, INFINITY}) {
    Entries entries = random_entries(4, 10, 100);
    entries.values[4] = bad;
    EXPECT_FALSE(keep_largest(entries, 3, DType::kFloat32));
    EXPECT_EQ(entries.size(), 10u);
  }
}

}  // namespace
}  // namespace virga::codec
