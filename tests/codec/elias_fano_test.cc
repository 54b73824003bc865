#include "virga/codec/elias_fano.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "virga/base/error.h"
#include "virga/base/random.h"

namespace virga::codec {
namespace {

std::vector<uint32_t> random_indices(uint64_t n, uint64_t k, uint64_t seed) {
  // Walks over 0 .. n-1 and keeps each with the probability that makes k in all (Knuth's algorithm
  // S).
  Random random(seed);
  std::vector<uint32_t> result;
  for (uint64_t i = 0; i < n && result.size() < k; ++i) {
    if (random.below(n - i) < k - result.size()) result.push_back(static_cast<uint32_t>(i));
  }
  return result;
}

std::vector<std::byte> encoded(const EliasFano& coder, const std::vector<uint32_t>& indices) {
  std::vector<std::byte> bytes(coder.bytes(), std::byte{0xa5});
  coder.encode(indices, bytes);
  return bytes;
}

void expect_round_trip(uint64_t n, const std::vector<uint32_t>& indices) {
  const EliasFano coder(n, indices.size());
  const std::vector<std::byte> bytes = encoded(coder, indices);
  std::vector<uint32_t> decoded(indices.size());
  coder.decode(bytes, decoded);
  ASSERT_EQ(decoded, indices) << indices.size() << " of " << n;
}

TEST(EliasFano, RoundTrips) {
  for (uint64_t n : {1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 1000, 65537}) {
    for (uint64_t k : {uint64_t{1}, n / 100, n / 10, n / 2, n - 1, n}) {
      if (k >= 1) expect_round_trip(n, random_indices(n, k, n + k));
    }
  }
  expect_round_trip(uint64_t{1} << 32, {0});
  expect_round_trip(uint64_t{1} << 32, {0xffffffffu});
  expect_round_trip(uint64_t{1} << 32, {0, 1, 2, 0x7fffffffu, 0xfffffffeu, 0xffffffffu});
}

TEST(EliasFano, RoundTripsRunsAtBothEnds) {
  std::vector<uint32_t> first(1000), last(1000);
  std::iota(first.begin(), first.end(), 0u);
  std::iota(last.begin(), last.end(), 99000u);
  expect_round_trip(100000, first);
  expect_round_trip(100000, last);
}

// The layout by hand: n = 10, k = 2 gives l = 2; indices 3 = 0|11 and 9 = 10|01.
TEST(EliasFano, LayoutIsTheDocumentedOne) {
  const EliasFano coder(10, 2);
  const std::vector<std::byte> bytes = encoded(coder, {3, 9});
  std::vector<std::byte> expected(16);
  expected[0] = std::byte{0b0111};  // low parts 11, then 01
  expected[8] = std::byte{0b1001};  // bits 0 + 0 and 2 + 1
  EXPECT_EQ(bytes, expected);
}

TEST(EliasFano, SizeIsTheFormulaUpTo2To40) {
  const auto formula = [](double n, double k) {
    const double l = std::floor(std::log2(n / k));
    const auto words = [](double bits) { return 8 * std::ceil(bits / 64); };
    return words(k * l) + words(k + std::floor((n - 1) / std::exp2(l)) + 1);
  };
  for (uint64_t n : {uint64_t{1}, uint64_t{100}, uint64_t{25600000}, uint64_t{1} << 32, uint64_t{1} << 40}) {
    for (uint64_t k : {uint64_t{1}, n / 1000, n / 100, n / 3, n}) {
      if (k == 0) continue;
      EXPECT_EQ(static_cast<double>(EliasFano(n, k).bytes()), formula(static_cast<double>(n), static_cast<double>(k)))
          << k << " of " << n;
    }
  }
  EXPECT_LT(8.0 * static_cast<double>(EliasFano(25600000, 256000).bytes()) / 256000, 8.6);
  EXPECT_EQ(EliasFano(5, 0).bytes(), 0u);
  EXPECT_EQ(EliasFano(0, 0).bytes(), 0u);
}

TEST(EliasFano, WrongUseIsRefused) {
  EXPECT_THROW(EliasFano(3, 4), Error);
  EXPECT_THROW(EliasFano(uint64_t{1} << 48, 1), Error);
  const EliasFano coder(10, 2);
  std::vector<std::byte> bytes(coder.bytes()), one_less(coder.bytes() - 1);
  EXPECT_THROW(coder.encode(std::vector<uint32_t>{1}, bytes), Error);
  EXPECT_THROW(coder.encode(std::vector<uint32_t>{1, 2}, one_less), Error);
  EXPECT_THROW(coder.encode(std::vector<uint32_t>{2, 1}, bytes), Error);
  EXPECT_THROW(coder.encode(std::vector<uint32_t>{2, 2}, bytes), Error);
  EXPECT_THROW(coder.encode(std::vector<uint32_t>{2, 10}, bytes), Error);
}

bool is_corrupt(const EliasFano& coder, std::span<const std::byte> bytes) {
  try {
    coder.validate(bytes);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    return true;
  }
}

TEST(EliasFano, EveryTruncationIsCorrupt) {
  const EliasFano coder(1000, 37);
  const std::vector<std::byte> bytes = encoded(coder, random_indices(1000, 37, 1));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_TRUE(is_corrupt(coder, cut)) << size;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_TRUE(is_corrupt(coder, longer));
}

TEST(EliasFano, AnIndexPastTheEndOrTwiceIsCorrupt) {
  const EliasFano coder(10, 2);  // l = 2, three high parts: 10 and 11 have codes but are no indices
  std::vector<std::byte> bytes = encoded(coder, {3, 9});
  bytes[0] = std::byte{0b1011};  // 11, 10: the second becomes 10 = n
  EXPECT_TRUE(is_corrupt(coder, bytes));
  bytes[0] = std::byte{0b1111};  // 11, 11: the second becomes 11
  EXPECT_TRUE(is_corrupt(coder, bytes));
  bytes = encoded(coder, {4, 5});
  bytes[0] = std::byte{0b0000};  // 4, 4
  EXPECT_TRUE(is_corrupt(coder, bytes));
  bytes[0] = std::byte{0b0001};  // 5, 4
  EXPECT_TRUE(is_corrupt(coder, bytes));
}

// Whatever arrives either is refused or decodes to k ascending indices below n that encode to the
// same bytes.
void expect_refused_or_sound(const EliasFano& coder, uint64_t n, uint64_t k, const std::vector<std::byte>& bytes) {
  std::vector<uint32_t> indices(k);
  if (is_corrupt(coder, bytes)) return;
  coder.decode(bytes, indices);
  for (size_t i = 0; i < k; ++i) {
    ASSERT_LT(indices[i], n);
    if (i > 0) {
      ASSERT_LT(indices[i - 1], indices[i]);
    }
  }
  ASSERT_EQ(encoded(coder, indices), bytes);
}

TEST(EliasFano, MutationsAreRefusedOrSound) {
  Random random(11);
  for (int round = 0; round < 20000; ++round) {
    const uint64_t n = 1 + random.below(300), k = 1 + random.below(n);
    const EliasFano coder(n, k);
    std::vector<std::byte> bytes = encoded(coder, random_indices(n, k, random()));
    const uint64_t flips = 1 + random.below(4);
    for (uint64_t flip = 0; flip < flips; ++flip) {
      bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1u << random.below(8));
    }
    expect_refused_or_sound(coder, n, k, bytes);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    expect_refused_or_sound(coder, n, k, bytes);
  }
}

}  // namespace
}  // namespace virga::codec
