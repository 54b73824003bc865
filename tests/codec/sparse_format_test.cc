#include "virga/codec/sparse_format.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "virga/base/error.h"
#include "virga/base/half.h"
#include "virga/base/random.h"

namespace virga::codec {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

struct Sample {
  std::vector<uint32_t> indices;
  std::vector<float> values;
};

Sample sample(uint64_t n, uint64_t k, uint64_t seed) {
  Random random(seed);
  Sample result;
  for (uint64_t i = 0; i < n; ++i) {
    if (random.below(n - i) >= k - result.indices.size()) continue;
    result.indices.push_back(static_cast<uint32_t>(i));
    result.values.push_back(static_cast<float>(random.normal()));
  }
  return result;
}

float rounded(float value, DType dtype) {
  if (dtype == DType::kFloat16) return half_to_float(float_to_half(value));
  if (dtype == DType::kBFloat16) return bfloat16_to_float(float_to_bfloat16(value));
  return value;
}

TEST(SparseFormat, DecodeAddsWhatWasEncoded) {
  for (DType dtype : kDTypes) {
    for (uint64_t n : {1, 7, 8, 9, 1000, 65537}) {
      for (uint64_t k : {uint64_t{1}, (n + 99) / 100, n}) {
        const SparseFormat format(n, k, dtype);
        const Sample s = sample(n, k, n + k);
        // One byte off the start of the allocation: nothing may rely on alignment.
        std::vector<std::byte> buffer(format.payload_bytes() + 1);
        const std::span<std::byte> bytes = std::span(buffer).subspan(1);
        format.encode(s.indices, s.values, bytes);
        std::vector<float> dst(n, 0.5f), expected(n, 0.5f);
        EXPECT_TRUE(format.decode_add(bytes, dst));
        for (size_t i = 0; i < k; ++i) expected[s.indices[i]] += rounded(s.values[i], dtype);
        ASSERT_EQ(dst, expected);
      }
    }
  }
}

TEST(SparseFormat, SizeDependsOnTheFormatAlone) {
  EXPECT_EQ(SparseFormat(0, 0, DType::kFloat32).payload_bytes(), 8u);
  // 8 flag + 8 (two halves, padded) + low 2*2 bits and high 2 + 2 + 1 bits, each padded to 8.
  EXPECT_EQ(SparseFormat(10, 2, DType::kFloat16).payload_bytes(), 8u + 8 + 8 + 8);
  const uint64_t n = uint64_t{1} << 40;
  EXPECT_EQ(SparseFormat(n, n, DType::kFloat32).payload_bytes(), 8 + 4 * n + 2 * n / 8);
  EXPECT_GT(SparseFormat(n, 1, DType::kFloat32).payload_bytes(), 8u);
}

TEST(SparseFormat, EmptyVectorTravels) {
  const SparseFormat format(0, 0, DType::kFloat16);
  std::vector<std::byte> bytes(format.payload_bytes());
  format.encode({}, {}, bytes);
  EXPECT_TRUE(format.decode_add(bytes, {}));
  format.encode_poison(bytes);
  EXPECT_FALSE(format.decode_add(bytes, {}));
}

TEST(SparseFormat, PoisonContributesNothing) {
  const SparseFormat format(100, 5, DType::kFloat32);
  std::vector<std::byte> bytes(format.payload_bytes(), std::byte{0xff});
  format.encode_poison(bytes);
  std::vector<float> dst(100, 2.0f);
  EXPECT_FALSE(format.decode_add(bytes, dst));
  EXPECT_EQ(dst, std::vector<float>(100, 2.0f));
  bytes.back() = std::byte{1};  // a flag with contents is a contradiction
  EXPECT_THROW(format.validate(bytes), Error);
}

TEST(SparseFormat, WrongUseIsRefused) {
  EXPECT_THROW(SparseFormat(10, 11, DType::kFloat32), Error);
  EXPECT_THROW(SparseFormat(10, 0, DType::kFloat32), Error);
  EXPECT_THROW(SparseFormat(10, 1, DType::kInt64), Error);
  const SparseFormat format(10, 1, DType::kFloat16);
  std::vector<std::byte> bytes(format.payload_bytes());
  const std::vector<uint32_t> index = {3};
  EXPECT_THROW(format.encode(index, std::vector<float>{1, 2}, bytes), Error);
  EXPECT_THROW(format.encode(index, std::vector<float>{1e6f}, bytes), Error);
  EXPECT_THROW(format.encode(index, std::vector<float>{std::nanf("")}, bytes), Error);
  format.encode(index, std::vector<float>{1}, bytes);
  std::vector<float> nine(9);
  EXPECT_THROW(format.decode_add(bytes, nine), Error);
}

// A message is refused as a whole or it is sound; a refused one leaves dst as it was.
void expect_refused_or_sound(const SparseFormat& format, std::span<const std::byte> bytes) {
  std::vector<float> dst(format.n(), 1.0f);
  try {
    format.decode_add(bytes, dst);
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::kCorrupt);
    ASSERT_EQ(dst, std::vector<float>(format.n(), 1.0f));
    return;
  }
  uint64_t changed = 0;
  for (float value : dst) {
    ASSERT_TRUE(std::isfinite(value));
    changed += value != 1.0f;
  }
  ASSERT_LE(changed, format.k());
}

TEST(SparseFormat, TruncationsAndMutationsAreRefusedOrSound) {
  Random random(5);
  for (int round = 0; round < 10000; ++round) {
    const uint64_t n = 1 + random.below(200), k = 1 + random.below(n);
    const SparseFormat format(n, k, kDTypes[random.below(3)]);
    const Sample s = sample(n, k, random());
    std::vector<std::byte> bytes(format.payload_bytes());
    format.encode(s.indices, s.values, bytes);
    const size_t size = random.below(bytes.size());
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_THROW(format.validate(cut), Error);
    const uint64_t flips = 1 + random.below(3);
    for (uint64_t flip = 0; flip < flips; ++flip) {
      bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1u << random.below(8));
    }
    expect_refused_or_sound(format, bytes);
    for (size_t i = 8; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random());
    expect_refused_or_sound(format, bytes);
  }
}

TEST(SparseFormat, PaddingAfterTheValuesMustBeZero) {
  const SparseFormat format(10, 1, DType::kFloat16);
  std::vector<std::byte> bytes(format.payload_bytes(), std::byte{0xff});
  format.encode(std::vector<uint32_t>{3}, std::vector<float>{1}, bytes);
  for (size_t i = 10; i < 16; ++i) {
    EXPECT_EQ(bytes[i], std::byte{0});
    bytes[i] = std::byte{1};
    EXPECT_THROW(format.validate(bytes), Error);
    bytes[i] = std::byte{0};
  }
  EXPECT_TRUE(format.validate(bytes).finite());
}

TEST(SparseFormat, NonFiniteValuesUnderAFiniteFlagAreCorrupt) {
  for (DType dtype : kDTypes) {
    const SparseFormat format(10, 1, dtype);
    std::vector<std::byte> bytes(format.payload_bytes());
    format.encode(std::vector<uint32_t>{3}, std::vector<float>{1}, bytes);
    const size_t top = 8 + size_of(dtype) - 1;
    bytes[top] = std::byte{0xff};
    bytes[top - 1] = std::byte{0xff};
    EXPECT_THROW(format.validate(bytes), Error);
  }
}

}  // namespace
}  // namespace virga::codec
