#include "virga/kernel/topk.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "virga/base/error.h"
#include "virga/base/half.h"

#include "kernel/isa_helper.h"

namespace virga::kernel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

// The definition: sort by magnitude, ties by index, take k, put them in order of index.
std::vector<uint32_t> reference(std::span<const float> x, size_t k) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

struct Shape {
  const char* name;
  std::function<float(size_t i, size_t n, Random& random)> at;
};

// What a sample misjudges, what ties, what is tiny, what sits in one place.
const std::vector<Shape> kShapes = {
    {"normal", [](size_t, size_t, Random& r) { return static_cast<float>(r.normal()); }},
    {"all equal", [](size_t, size_t, Random&) { return -3.5f; }},
    {"all zero", [](size_t i, size_t, Random&) { return i % 3 ? 0.0f : -0.0f; }},
    {"ascending", [](size_t i, size_t, Random&) { return static_cast<float>(i); }},
    {"descending", [](size_t i, size_t n, Random&) { return -static_cast<float>(n - i); }},
    {"three values", [](size_t, size_t, Random& r) { return static_cast<float>(r.below(3)) - 1; }},
    {"mostly zero", [](size_t, size_t, Random& r) { return r.below(1000) ? 0.0f : 1.0f; }},
    {"cluster at the end",
     [](size_t i, size_t n, Random& r) { return static_cast<float>(r.normal()) * (i > n - n / 50 ? 1e6f : 1e-6f); }},
    {"cluster between lines", [](size_t i, size_t, Random&) { return i % 16 == 5 ? 2.0f : 1.0f; }},
    {"subnormal", [](size_t, size_t, Random& r) { return kTiny * static_cast<float>(r.below(5000)); }},
    {"one spike", [](size_t i, size_t n, Random&) { return i == n / 2 ? 1e38f : 1.0f; }},
    {"heavy tail", [](size_t, size_t, Random& r) { return std::exp(8 * static_cast<float>(r.normal())); }},
};

std::vector<float> make(const Shape& shape, size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = shape.at(i, n, random);
  return x;
}

std::vector<size_t> some_k(size_t n) {
  std::vector<size_t> result = {1, n};
  for (size_t k : {n / 1000, n / 100, n / 10, n / 4, n / 4 + 1, n / 2, n - 1}) {
    if (k >= 1) result.push_back(k);
  }
  return result;
}

void expect_exact(const Selection& selection, std::span<const float> x, size_t k, const char* what) {
  ASSERT_TRUE(selection.finite);
  ASSERT_EQ(selection.values.size(), k);
  const std::vector<uint32_t> got(selection.indices.begin(), selection.indices.end());
  ASSERT_EQ(got, reference(x, k)) << what << ", " << k << " of " << x.size();
  for (size_t i = 0; i < k; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(selection.values[i]), std::bit_cast<uint32_t>(x[got[i]]));
  }
}

class TopKTest : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, TopKTest, kAllIsas, isa_name);

TEST_P(TopKTest, EqualsTheSortOnEveryShape) {
  const IsaOverride isa(GetParam());
  TopK topk;  // one workspace for all: nothing of one call may leak into the next
  for (const Shape& shape : kShapes) {
    for (size_t n : {size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{1000}, size_t{65537}}) {
      const std::vector<float> x = make(shape, n, n);
      for (size_t k : some_k(n)) expect_exact(topk.select(x, k), x, k, shape.name);
    }
  }
}

// Long enough that the buffer overflows many times and that the sample misjudges.
TEST_P(TopKTest, EqualsTheSortWhereTheSampleFails) {
  const IsaOverride isa(GetParam());
  TopK topk;
  for (const Shape& shape : kShapes) {
    const std::vector<float> x = make(shape, 700001, 3);
    expect_exact(topk.select(x, 700), x, 700, shape.name);
  }
}

TEST_P(TopKTest, NothingIsSelectedIfAnyLaneIsNotFinite) {
  const IsaOverride isa(GetParam());
  TopK topk;
  for (size_t n : {size_t{1}, size_t{9}, size_t{67}, size_t{40000}}) {
    std::vector<float> x = normals(n, 5);
    for (size_t i = 0; i<n; i += n> 100 ? 997 : 1) {
      for (float bad : {std::nanf(""), -std::nanf(""), kInf, -kInf}) {
        const float kept = std::exchange(x[i], bad);
        const Selection selection = topk.select(x, 1);
        ASSERT_FALSE(selection.finite) << i << " of " << n;
        ASSERT_TRUE(selection.indices.empty() && selection.values.empty());
        x[i] = kept;
      }
    }
    EXPECT_TRUE(topk.select(x, 1).finite);
  }
  EXPECT_FALSE(topk.select(std::vector<float>(100000, std::nanf("")), 10).finite);
}

TEST_P(TopKTest, ErrorFeedbackConservesEverythingBitForBit) {
  const IsaOverride isa(GetParam());
  TopK topk;
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (size_t n : {size_t{1}, size_t{8}, size_t{9}, size_t{65537}}) {
      std::vector<float> residual(n);
      for (uint64_t step = 0; step < 3; ++step) {
        const std::vector<float> gradient = normals(n, 10 + step);
        std::vector<float> sum = residual;
        for (size_t i = 0; i < n; ++i) sum[i] += gradient[i] * 0.7f;
        const size_t k = std::max<size_t>(1, n / 100);
        const Selection selection = topk.error_feedback_select(gradient, residual, 0.7f, k, dtype);
        const std::vector<uint32_t> expected = reference(sum, k);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), selection.indices.begin(), selection.indices.end()));
        for (size_t i = 0; i < k; ++i) {
          const uint32_t at = selection.indices[i];
          float sent = sum[at];
          if (dtype == DType::kFloat16) sent = half_to_float(float_to_half(sent));
          if (dtype == DType::kBFloat16) sent = bfloat16_to_float(float_to_bfloat16(sent));
          ASSERT_EQ(selection.values[i], sent);
          ASSERT_EQ(residual[at], sum[at] - sent);
          ASSERT_EQ(residual[at] + sent, sum[at]);  // exactly
          sum[at] -= sent;
        }
        ASSERT_EQ(bits_of(residual), bits_of(sum));
      }
    }
  }
}

// Also where the buffer overflows: what is dropped then returns to the residual.
TEST_P(TopKTest, ErrorFeedbackIsExactWhereTheSampleFails) {
  const IsaOverride isa(GetParam());
  TopK topk;
  const std::vector<std::pair<size_t, std::vector<size_t>>> cases = {{65537, some_k(65537)}, {300001, {300, 30000}}};
  for (const Shape& shape : kShapes) {
    for (const auto& [n, counts] : cases) {
      const std::vector<float> gradient = make(shape, n, n);
      std::vector<float> sum = gradient;
      for (float& value : sum) value += 0.0f;  // -0 becomes 0
      for (size_t k : counts) {
        std::vector<float> residual(n), rest = sum;
        expect_exact(topk.error_feedback_select(gradient, residual, 1.0f, k, DType::kFloat32), sum, k, shape.name);
        for (uint32_t index : reference(sum, k)) rest[index] = 0;
        ASSERT_EQ(bits_of(residual), bits_of(rest)) << shape.name << ", " << k << " of " << n;
      }
    }
  }
}

TEST_P(TopKTest, ResidualIsUntouchedIfAnythingIsNotFinite) {
  const IsaOverride isa(GetParam());
  TopK topk;
  for (size_t n : {size_t{1}, size_t{9}, size_t{67}, size_t{40000}}) {
    std::vector<float> gradient = normals(n, 6), residual = normals(n, 7);
    residual[n / 2] = std::numeric_limits<float>::max();
    const std::vector<uint32_t> before = bits_of(residual);
    for (size_t i = 0; i<n; i += n> 100 ? 997 : 1) {
      for (float bad : {std::nanf(""), kInf, -kInf, 3e38f}) {  // the last overflows once scaled
        const float kept = std::exchange(gradient[i], bad);
        ASSERT_FALSE(topk.error_feedback_select(gradient, residual, 4.0f, 1, DType::kFloat32).finite) << i;
        ASSERT_EQ(bits_of(residual), before) << i << " of " << n;
        gradient[i] = kept;
      }
    }
    // Finite alone, but not as a sum with the residual.
    gradient[n / 2] = std::numeric_limits<float>::max() / 4;
    EXPECT_FALSE(topk.error_feedback_select(gradient, residual, 1.0f, 1, DType::kFloat32).finite);
    EXPECT_EQ(bits_of(residual), before);
  }
}

TEST_P(TopKTest, HugeButFiniteSumsAreTaken) {
  const IsaOverride isa(GetParam());
  TopK topk;
  std::vector<float> gradient = {1e38f, -0x1.fffffep102f, 1.0f};
  std::vector<float> residual = {1e38f, -std::numeric_limits<float>::max(), 1.0f};
  const Selection selection = topk.error_feedback_select(gradient, residual, 1.0f, 2, DType::kFloat32);
  ASSERT_TRUE(selection.finite);
  EXPECT_EQ(selection.values[0], 2e38f);
  EXPECT_EQ(selection.values[1], -std::numeric_limits<float>::max());
}

TEST_P(TopKTest, HalfSaturatesAndTheRestStays) {
  const IsaOverride isa(GetParam());
  TopK topk;
  std::vector<float> residual(3);
  const Selection selection =
      topk.error_feedback_select(std::vector<float>{70000, -1e6f, 1}, residual, 1.0f, 2, DType::kFloat16);
  EXPECT_EQ(selection.values[0], 65504.0f);
  EXPECT_EQ(selection.values[1], -65504.0f);
  EXPECT_EQ(residual, (std::vector<float>{70000 - 65504, -1e6f + 65504, 1}));
}

TEST(TopKArguments, EmptyAndWrongUse) {
  TopK topk;
  std::vector<float> none, three(3), four(4);
  EXPECT_TRUE(topk.select(none, 0).finite);
  EXPECT_TRUE(topk.error_feedback_select(none, none, 1, 0, DType::kFloat32).indices.empty());
  EXPECT_THROW(topk.select(three, 0), Error);
  EXPECT_THROW(topk.select(three, 4), Error);
  EXPECT_THROW(topk.error_feedback_select(three, four, 1, 1, DType::kFloat32), Error);
  EXPECT_THROW(topk.error_feedback_select(three, three, 1, 1, DType::kInt64), Error);
  four[2] = kInf;
  EXPECT_THROW(topk.error_feedback_select(std::vector<float>(4), four, 1, 1, DType::kFloat32), Error);
}

}  // namespace
}  // namespace virga::kernel
