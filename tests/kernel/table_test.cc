// The select kernels of every instruction set against the scalar ones, bit for bit, on floats of
// every kind.
#include "virga/kernel/table.h"

#include <algorithm>
#include <cstring>

#include "kernel/isa_helper.h"

namespace virga::kernel {
namespace {

class SelectTableTest : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, SelectTableTest, kAllIsas, isa_name);

const std::vector<int32_t> kThresholds = {-1, 0, 0x38800000, 0x3f800000, 0x7f7fffff, 0x7fffffff};

TEST_P(SelectTableTest, ReductionsEqualTheScalarOnes) {
  const IsaOverride isa(GetParam());
  const SelectTable& table = select_table();
  for (size_t n : kSizes) {
    const std::vector<float> x = any_bits(n, n), finite = normals(n, n);
    EXPECT_EQ(table.max_magnitude(x.data(), 1.0f, n), kSelectScalar.max_magnitude(x.data(), 1.0f, n));
    EXPECT_EQ(table.max_magnitude(finite.data(), 0.3f, n), kSelectScalar.max_magnitude(finite.data(), 0.3f, n));
    EXPECT_EQ(table.sum_magnitudes(finite.data(), n), kSelectScalar.sum_magnitudes(finite.data(), n));
    for (int32_t threshold : kThresholds) {
      EXPECT_EQ(table.count_above(x.data(), threshold, n), kSelectScalar.count_above(x.data(), threshold, n));
    }
  }
}

struct Gathered {
  size_t count = 0;
  std::vector<uint32_t> indices;
  std::vector<float> values;
  explicit Gathered(size_t n) : indices(n), values(n) {}
  bool operator==(const Gathered& other) const {
    return count == other.count &&
           std::equal(indices.begin(), indices.begin() + ptrdiff_t(count), other.indices.begin()) &&
           (count == 0 || std::memcmp(values.data(), other.values.data(), count * sizeof(float)) == 0);
  }
};

TEST_P(SelectTableTest, GathersEqualTheScalarOnesAndStayInside) {
  const IsaOverride isa(GetParam());
  for (size_t n : kSizes) {
    if (n > kBlock) continue;
    const std::vector<float> x = any_bits(n, n), gradient = normals(n, n + 1);
    for (int32_t threshold : kThresholds) {
      Gathered got(n), expected(n);  // of exactly n entries: the sanitizer sees a write beyond
      got.count = select_table().gather(x.data(), threshold, 77, n, got.indices.data(), got.values.data());
      expected.count =
          kSelectScalar.gather(x.data(), threshold, 77, n, expected.indices.data(), expected.values.data());
      ASSERT_EQ(got, expected) << n;
      std::vector<float> residual = x, expected_residual = x;
      got.count = select_table().accumulate_gather(residual.data(), gradient.data(), 0.3f, threshold, 77, n,
                                                   got.indices.data(), got.values.data());
      expected.count = kSelectScalar.accumulate_gather(expected_residual.data(), gradient.data(), 0.3f, threshold, 77,
                                                       n, expected.indices.data(), expected.values.data());
      ASSERT_EQ(got, expected) << n;
      ASSERT_EQ(bits_of(residual), bits_of(expected_residual)) << n;
    }
  }
}

}  // namespace
}  // namespace virga::kernel
