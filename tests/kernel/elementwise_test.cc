#include "virga/kernel/elementwise.h"

#include <cmath>
#include <limits>

#include "virga/base/error.h"
#include "virga/base/half.h"
#include "virga/kernel/sgd.h"

#include "kernel/isa_helper.h"

namespace virga::kernel {
namespace {

class Elementwise : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, Elementwise, kAllIsas, isa_name);

std::vector<uint16_t> half_words(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> x(n);
  for (uint16_t& value : x) value = static_cast<uint16_t>(random());
  return x;
}

// Every kernel is judged by the plain loop of its definition, written here from base/half.h.
TEST_P(Elementwise, AddIsThePlainSum) {
  const IsaOverride isa(GetParam());
  for (size_t n : kSizes) {
    std::vector<float> dst = normals(n, 1), expected = dst;
    const std::vector<float> src = any_bits(n, 2);  // one NaN at most meets: dst has none
    add(dst, src);
    for (size_t i = 0; i < n; ++i) expected[i] += src[i];
    ASSERT_EQ(bits_of(dst), bits_of(expected)) << n;
  }
}

TEST_P(Elementwise, AddHalfAndBFloat16) {
  const IsaOverride isa(GetParam());
  for (size_t n : kSizes) {
    const std::vector<uint16_t> src = half_words(n, 3);
    std::vector<float> half = normals(n, 1), bfloat16 = half, expected = half;
    add_half(half, src);
    for (size_t i = 0; i < n; ++i) expected[i] += half_to_float(src[i]);
    ASSERT_EQ(bits_of(half), bits_of(expected)) << n;
    expected = bfloat16;
    add_bfloat16(bfloat16, src);
    for (size_t i = 0; i < n; ++i) expected[i] += bfloat16_to_float(src[i]);
    ASSERT_EQ(bits_of(bfloat16), bits_of(expected)) << n;
  }
}

TEST_P(Elementwise, ScaleIsThePlainProduct) {
  const IsaOverride isa(GetParam());
  for (size_t n : kSizes) {
    std::vector<float> dst = any_bits(n, 4), expected = dst;
    scale(dst, 0.3f);
    for (float& value : expected) value *= 0.3f;
    ASSERT_EQ(bits_of(dst), bits_of(expected)) << n;
  }
}

TEST_P(Elementwise, PackRoundsAsTheReferenceDoes) {
  const IsaOverride isa(GetParam());
  for (size_t n : kSizes) {
    for (float factor : {1.0f, 0.25f, 3.0f}) {
      const std::vector<float> src = any_bits(n, 5);
      std::vector<uint16_t> half(n), bfloat16(n), half_expected(n), bfloat16_expected(n);
      pack_half(half, src, factor);
      pack_bfloat16(bfloat16, src, factor);
      for (size_t i = 0; i < n; ++i) half_expected[i] = float_to_half(src[i] * factor);
      for (size_t i = 0; i < n; ++i) bfloat16_expected[i] = float_to_bfloat16(src[i] * factor);
      ASSERT_EQ(half, half_expected) << n;
      ASSERT_EQ(bfloat16, bfloat16_expected) << n;
    }
  }
}

TEST_P(Elementwise, UnpackGivesEveryWordItsValue) {
  const IsaOverride isa(GetParam());
  std::vector<uint16_t> words(65536);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  for (size_t n : {words.size(), words.size() - 3, size_t{9}, size_t{7}, size_t{0}}) {
    const std::span<const uint16_t> src(words.data() + words.size() - n, n);
    std::vector<float> half(n), bfloat16(n), expected(n);
    unpack_half(half, src);
    for (size_t i = 0; i < n; ++i) expected[i] = half_to_float(src[i]);
    ASSERT_EQ(bits_of(half), bits_of(expected));
    unpack_bfloat16(bfloat16, src);
    for (size_t i = 0; i < n; ++i) expected[i] = bfloat16_to_float(src[i]);
    ASSERT_EQ(bits_of(bfloat16), bits_of(expected));
  }
}

TEST_P(Elementwise, AllFiniteSeesEveryLane) {
  const IsaOverride isa(GetParam());
  for (size_t n : {size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{33}, size_t{100}, size_t{5000}}) {
    std::vector<float> x = normals(n, 6);
    x[n / 2] = std::numeric_limits<float>::max();
    EXPECT_TRUE(all_finite(x));
    for (size_t i = 0; i<n; i += n> 1000 ? 37 : 1) {
      for (float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()}) {
        const float kept = std::exchange(x[i], bad);
        ASSERT_FALSE(all_finite(x)) << i << " of " << n;
        x[i] = kept;
      }
    }
  }
  EXPECT_TRUE(all_finite({}));
}

TEST_P(Elementwise, RoundToSaturatesAndNeverMakesInf) {
  const IsaOverride isa(GetParam());
  const float largest = std::numeric_limits<float>::max();
  std::vector<float> values = {1.0f, 1.0f / 3, 65519.0f, 65520.0f, -1e30f, 1e-30f, largest, -largest, 0.1f};
  std::vector<float> half = values, bfloat16 = values;
  round_to(DType::kFloat16, half);
  round_to(DType::kBFloat16, bfloat16);
  const float top = std::bit_cast<float>(0x7f7f0000u);
  EXPECT_EQ(half, (std::vector<float>{1.0f, half_to_float(float_to_half(1.0f / 3)), 65504.0f, 65504.0f, -65504.0f, 0.0f,
                                      65504.0f, -65504.0f, half_to_float(float_to_half(0.1f))}));
  EXPECT_EQ(bfloat16[6], top);
  EXPECT_EQ(bfloat16[7], -top);
  EXPECT_EQ(bfloat16[1], bfloat16_to_float(float_to_bfloat16(1.0f / 3)));
  std::vector<float> same = values;
  round_to(DType::kFloat32, same);
  EXPECT_EQ(same, values);
  EXPECT_THROW(round_to(DType::kInt64, same), Error);
}

// The update of torch.optim.SGD written out, one rounding an operation.
void plain_sgd(std::vector<float>& param, const std::vector<float>& grad, std::vector<float>& buffer,
               const SgdOptions& options) {
  for (size_t i = 0; i < param.size(); ++i) {
    const volatile float decayed = options.weight_decay * param[i];
    volatile float d = grad[i] + decayed;
    if (options.momentum != 0) {
      const volatile float kept = buffer[i] * options.momentum;
      d = buffer[i] = kept + d;
    }
    const volatile float step = -options.lr * d;
    param[i] = param[i] + step;
  }
}

TEST_P(Elementwise, SgdKeepsTorchsOrderOfOperations) {
  const IsaOverride isa(GetParam());
  for (const SgdOptions& options : {SgdOptions{0.1f, 0.9f, 5e-4f}, SgdOptions{0.1f, 0.0f, 5e-4f},
                                    SgdOptions{0.3f, 0.9f, 0.0f}, SgdOptions{0.3f, 0.0f, 0.0f}}) {
    for (size_t n : kSizes) {
      std::vector<float> param = normals(n, 7), expected = param;
      std::vector<float> buffer(options.momentum == 0 ? 0 : n), expected_buffer = buffer;
      for (uint64_t step = 0; step < 3; ++step) {
        const std::vector<float> grad = normals(n, 8 + step);
        sgd_step(param, grad, buffer, options);
        plain_sgd(expected, grad, expected_buffer, options);
      }
      ASSERT_EQ(bits_of(param), bits_of(expected)) << n;
      ASSERT_EQ(bits_of(buffer), bits_of(expected_buffer)) << n;
    }
  }
}

TEST(ElementwiseArguments, SizesThatDifferAreRefused) {
  std::vector<float> three(3), four(4), none;
  std::vector<uint16_t> words(4);
  EXPECT_THROW(add(three, four), Error);
  EXPECT_THROW(add_half(three, words), Error);
  EXPECT_THROW(pack_half(words, three), Error);
  EXPECT_THROW(unpack_bfloat16(three, words), Error);
  EXPECT_THROW(sgd_step(three, four, none, {}), Error);
  EXPECT_THROW(sgd_step(three, three, none, {.momentum = 0.9f}), Error);
  EXPECT_THROW(sgd_step(three, three, three, {.momentum = 0.0f}), Error);
}

TEST(ElementwiseArguments, ScatterAddAddsInOrder) {
  std::vector<float> dst = {1, 2, 3, 4};
  scatter_add(dst, std::vector<uint32_t>{0, 3}, std::vector<float>{10, 20});
  EXPECT_EQ(dst, (std::vector<float>{11, 2, 3, 24}));
}

TEST(ElementwiseArguments, GatherTakesWhatTheIndicesSay) {
  const std::vector<float> src = any_bits(5000, 1);
  for (size_t n : kSizes) {
    Random random(n);
    std::vector<uint32_t> indices;
    std::vector<float> expected;
    for (size_t i = 0; i < n; ++i) {
      indices.push_back(static_cast<uint32_t>(random.below(src.size())));
      expected.push_back(src[indices.back()]);
    }
    std::vector<float> dst(n), longer(n + 1);
    gather(dst, src, indices);
    ASSERT_EQ(bits_of(dst), bits_of(expected)) << n;
    EXPECT_THROW(gather(longer, src, indices), Error);
    EXPECT_THROW(scatter_add(dst, indices, longer), Error);
  }
}

TEST(IsaChoice, OverrideIsUndoneAndAbsentSetsAreRefused) {
  const Isa before = active_isa();
  EXPECT_EQ(before, best_isa());
  {
    const IsaOverride scalar(Isa::kScalar);
    EXPECT_EQ(active_isa(), Isa::kScalar);
  }
  EXPECT_EQ(active_isa(), before);
  if (!is_supported(Isa::kAvx512)) {
    EXPECT_THROW(IsaOverride{Isa::kAvx512}, Error);
  }
}

}  // namespace
}  // namespace virga::kernel
