#include "virga/codec/error_feedback.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "virga/base/error.h"
#include "virga/base/random.h"
#include "virga/codec/density.h"

namespace virga::codec {
namespace {

std::vector<float> normals(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(random.normal());
  return x;
}

std::vector<float> residual_of(const ErrorFeedback& feedback) {
  return {feedback.residual().begin(), feedback.residual().end()};
}

// For every element and every step: what was sent and what stays make what was there, to the bit.
TEST(ErrorFeedback, NothingIsLost) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (size_t n : {size_t{1}, size_t{7}, size_t{9}, size_t{65537}}) {
      ErrorFeedback feedback(n);
      const SparseFormat format(n, k_for_density(n, 0.01), dtype);
      std::vector<std::byte> bytes(format.payload_bytes());
      for (uint64_t step = 0; step < 4; ++step) {
        const std::vector<float> gradient = normals(n, step + 1);
        std::vector<float> expected = residual_of(feedback);
        for (size_t i = 0; i < n; ++i) expected[i] += gradient[i] * 0.25f;
        ASSERT_TRUE(feedback.compress(gradient, 0.25f, format, bytes));
        std::vector<float> sum = residual_of(feedback);
        ASSERT_TRUE(format.decode_add(bytes, sum));
        ASSERT_EQ(sum, expected);
      }
    }
  }
}

// Parts are as vectors of their own, and restored together. An empty one has no message.
TEST(ErrorFeedback, PartsAreCompressedEachByItself) {
  const std::vector<float> gradient = normals(100, 1);
  const std::vector<SparseFormat> parts = {{60, 6, DType::kFloat16}, {0, 0, DType::kFloat16}, {40, 2, DType::kFloat16}};
  const size_t border = parts[0].payload_bytes();
  std::vector<std::byte> bytes(border + parts[2].payload_bytes()), alone = bytes;
  ErrorFeedback feedback(100), first(60), second(40);
  const std::span<const float> all(gradient);
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(feedback.compress(gradient, 0.5f, parts, bytes));
    first.compress(all.first(60), 0.5f, parts[0], std::span(alone).first(border));
    second.compress(all.subspan(60), 0.5f, parts[2], std::span(alone).subspan(border));
    EXPECT_EQ(bytes, alone);
  }
  feedback.restore_last();
  first.restore_last();
  second.restore_last();
  std::vector<float> expected = residual_of(first);
  const std::vector<float> tail = residual_of(second);
  expected.insert(expected.end(), tail.begin(), tail.end());
  EXPECT_EQ(residual_of(feedback), expected);
}

TEST(ErrorFeedback, APartWithNaNIsPoisonedAlone) {
  std::vector<float> gradient = normals(100, 1);
  gradient[70] = std::nanf("");
  const std::vector<SparseFormat> parts = {{60, 6, DType::kFloat32}, {40, 2, DType::kFloat32}};
  const size_t border = parts[0].payload_bytes();
  std::vector<std::byte> bytes(border + parts[1].payload_bytes());
  ErrorFeedback feedback(100);
  EXPECT_FALSE(feedback.compress(gradient, 1, parts, bytes));
  EXPECT_TRUE(parts[0].validate(std::span(bytes).first(border)).finite());
  EXPECT_FALSE(parts[1].validate(std::span(bytes).subspan(border)).finite());
  feedback.restore_last();
  std::fill(gradient.begin() + 60, gradient.end(), 0.0f);
  EXPECT_EQ(residual_of(feedback), gradient);
  EXPECT_THROW(feedback.compress(gradient, 1, parts, std::span(bytes).first(border)), Error);
  EXPECT_THROW(feedback.compress(gradient, 1, std::span(parts).first(1), std::span(bytes).first(border)), Error);
  EXPECT_EQ(residual_of(feedback), gradient);
}

TEST(ErrorFeedback, RestoreGivesBackWhatWasSent) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    ErrorFeedback feedback(1000);
    const SparseFormat format(1000, 10, dtype);
    std::vector<std::byte> bytes(format.payload_bytes());
    const std::vector<float> gradient = normals(1000, 1);
    feedback.compress(gradient, 1.0f, format, bytes);
    feedback.restore_last();
    EXPECT_EQ(residual_of(feedback), gradient);
    feedback.restore_last();  // only once
    EXPECT_EQ(residual_of(feedback), gradient);
  }
}

// What comes back can be sent again; a step that is skipped takes it away to the bit, however it was rounded.
TEST(ErrorFeedback, RestoreUndoesWhatWasGivenBack) {
  ErrorFeedback feedback(1000);
  const SparseFormat format(1000, 10, DType::kFloat16);
  std::vector<std::byte> bytes(format.payload_bytes());
  const std::vector<float> gradient = normals(1000, 1);
  feedback.compress(gradient, 1.0f, format, bytes);
  const std::vector<float> before = residual_of(feedback);
  Entries entries;
  entries.add(3, 1e6f);
  entries.add(999, 1.0f / 3);
  EXPECT_TRUE(feedback.give_back(entries));
  EXPECT_TRUE(feedback.give_back(entries));
  EXPECT_EQ(feedback.residual()[3], before[3] + 1e6f + 1e6f);
  EXPECT_EQ(feedback.residual()[999], before[999] + 1.0f / 3 + 1.0f / 3);
  feedback.restore_last();
  EXPECT_EQ(residual_of(feedback), gradient);
  feedback.restore_last();  // only once
  EXPECT_EQ(residual_of(feedback), gradient);
}

TEST(ErrorFeedback, WhatIsGivenBackStaysWhenTheNextStepBegins) {
  ErrorFeedback feedback(10);
  const SparseFormat format(10, 1, DType::kFloat32);
  std::vector<std::byte> bytes(format.payload_bytes());
  const std::vector<float> nothing(10);
  feedback.compress(nothing, 1.0f, format, bytes);
  Entries entries;
  entries.add(4, 2.5f);
  feedback.give_back(entries);
  feedback.compress(nothing, 1.0f, format, bytes);
  feedback.restore_last();
  EXPECT_EQ(feedback.residual()[4], 2.5f);
}

TEST(ErrorFeedback, WhatWouldOverflowIsNotGivenBack) {
  ErrorFeedback feedback(2);
  feedback.set_residual(std::vector<float>{1, 3e38f});
  for (float bad : {3e38f, std::nanf("")}) {
    Entries entries;
    entries.add(0, 1);
    entries.add(1, bad);
    EXPECT_FALSE(feedback.give_back(entries));
    EXPECT_EQ(residual_of(feedback), (std::vector<float>{1, 3e38f}));
  }
}

TEST(ErrorFeedback, NonFiniteGradientPoisonsTheMessageOnly) {
  ErrorFeedback feedback(100);
  const SparseFormat format(100, 3, DType::kFloat16);
  std::vector<std::byte> bytes(format.payload_bytes());
  feedback.compress(normals(100, 1), 1.0f, format, bytes);
  const std::vector<float> before = residual_of(feedback);
  std::vector<float> gradient = normals(100, 2);
  gradient[99] = INFINITY;
  EXPECT_FALSE(feedback.compress(gradient, 1.0f, format, bytes));
  EXPECT_FALSE(format.validate(bytes).finite());
  feedback.restore_last();  // nothing was sent, nothing comes back
  EXPECT_EQ(residual_of(feedback), before);
}

TEST(ErrorFeedback, WrongUseChangesNothing) {
  ErrorFeedback feedback(100);
  const std::vector<float> gradient = normals(100, 1);
  const SparseFormat format(100, 3, DType::kFloat16), other(99, 3, DType::kFloat16);
  std::vector<std::byte> bytes(format.payload_bytes()), other_bytes(other.payload_bytes());
  EXPECT_THROW(feedback.compress(normals(99, 1), 1, format, bytes), Error);
  EXPECT_THROW(feedback.compress(gradient, 1, other, other_bytes), Error);
  EXPECT_THROW(feedback.compress(gradient, 1, format, std::span(bytes).first(5)), Error);
  EXPECT_THROW(feedback.set_residual(std::vector<float>(99)), Error);
  EXPECT_THROW(feedback.set_residual(std::vector<float>(100, std::nanf(""))), Error);
  EXPECT_EQ(residual_of(feedback), std::vector<float>(100));
  feedback.set_residual(gradient);
  EXPECT_EQ(residual_of(feedback), gradient);
}

TEST(ErrorFeedback, EmptyVector) {
  ErrorFeedback feedback(0);
  const SparseFormat format(0, 0, DType::kFloat32);
  std::vector<std::byte> bytes(format.payload_bytes());
  EXPECT_TRUE(feedback.compress({}, 1, format, bytes));
  EXPECT_TRUE(format.decode_add(bytes, {}));
}

}  // namespace
}  // namespace virga::codec
