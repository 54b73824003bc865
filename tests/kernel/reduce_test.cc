#include "virga/kernel/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "virga/base/error.h"
#include "virga/base/half.h"

#include "kernel/isa_helper.h"

namespace virga::kernel {
namespace {

class Reduce : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, Reduce, kAllIsas, isa_name);

// Every size up to two of the largest groups, then the sizes of all kernels.
std::vector<size_t> sizes() {
  std::vector<size_t> all = kSizes;
  for (size_t n = 0; n < 132; ++n) all.push_back(n);
  return all;
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};

// The definitions once more, an element at a time.
template <class T>
T expected(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op != ReduceOp::kSum && std::isnan(a)) return a;
    if (op != ReduceOp::kSum && std::isnan(b)) return b;
  }
  switch (op) {
    case ReduceOp::kSum:
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
      } else {
        return a + b;
      }
    case ReduceOp::kMin:
      return a < b ? a : b;
    case ReduceOp::kMax:
      return a > b ? a : b;
  }
  return a;
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& x) {
  return std::as_writable_bytes(std::span(x));
}

template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& wanted) {
  for (size_t i = 0; i < got.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(got[i]) && std::isnan(wanted[i])) continue;
    }
    ASSERT_EQ(std::memcmp(&got[i], &wanted[i], sizeof(T)), 0)
        << "element " << i << ": " << got[i] << ", not " << wanted[i];
  }
}

// Random bits: extremes of integers, and of floats subnormals, infinities and NaNs.
template <class T>
std::vector<T> any(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<T> x(n);
  for (T& value : x) {
    const uint64_t bits = random();
    std::memcpy(&value, &bits, sizeof(T));
    if (random.below(16) == 0) value = std::numeric_limits<T>::max();
    if (random.below(16) == 0) value = std::numeric_limits<T>::quiet_NaN();  // 0 for integers
  }
  return x;
}

template <class T>
void check_two(DType dtype) {
  for (ReduceOp op : kOps) {
    for (size_t n : sizes()) {
      std::vector<T> dst = any<T>(n, 1), src = any<T>(n, 2), wanted = dst;
      for (size_t i = 0; i < n; ++i) wanted[i] = expected(op, dst[i], src[i]);
      reduce(op, dtype, bytes_of(dst), bytes_of(src));
      expect_same(dst, wanted);
    }
  }
}

TEST_P(Reduce, TwoVectors) {
  const IsaOverride isa(GetParam());
  check_two<float>(DType::kFloat32);
  check_two<double>(DType::kFloat64);
  check_two<int32_t>(DType::kInt32);
  check_two<int64_t>(DType::kInt64);
}

template <class T>
void check_many(DType dtype) {
  for (ReduceOp op : kOps) {
    for (size_t n : sizes()) {
      for (size_t count : {1, 2, 3, 7}) {
        std::vector<std::vector<T>> inputs;
        for (size_t j = 0; j < count; ++j) inputs.push_back(any<T>(n, 10 + j));
        std::vector<T> wanted = inputs[0];
        for (size_t j = 1; j < count; ++j) {
          for (size_t i = 0; i < n; ++i) wanted[i] = expected(op, wanted[i], inputs[j][i]);
        }
        std::vector<std::span<const std::byte>> spans;
        for (std::vector<T>& input : inputs) spans.push_back(bytes_of(input));
        reduce(op, dtype, bytes_of(inputs.back()), spans);  // into one of the inputs
        expect_same(inputs.back(), wanted);
      }
    }
  }
}

TEST_P(Reduce, ManyVectorsFromLeftToRight) {
  const IsaOverride isa(GetParam());
  check_many<float>(DType::kFloat32);
  check_many<double>(DType::kFloat64);
  check_many<int32_t>(DType::kInt32);
  check_many<int64_t>(DType::kInt64);
}

float widen(DType dtype, uint16_t half) {
  return dtype == DType::kFloat16 ? half_to_float(half) : bfloat16_to_float(half);
}
uint16_t narrow(DType dtype, float value) {
  return dtype == DType::kFloat16 ? float_to_half(value) : float_to_bfloat16(value);
}

// Halves that are numbers; any<> would be NaN too often to see rounding.
std::vector<uint16_t> halves(DType dtype, size_t n, uint64_t seed) {
  std::vector<uint16_t> x;
  for (float value : normals(n, seed, 3)) x.push_back(narrow(dtype, value));
  for (size_t i = 0; i < n; i += 50) x[i] = static_cast<uint16_t>(i);  // subnormals, too
  if (n > 20) x[20] = narrow(dtype, std::numeric_limits<float>::quiet_NaN());
  return x;
}

void expect_same_halves(DType dtype, const std::vector<uint16_t>& got, const std::vector<float>& wanted) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wanted[i])) {
      ASSERT_TRUE(std::isnan(widen(dtype, got[i]))) << i;
    } else {
      ASSERT_EQ(got[i], narrow(dtype, wanted[i])) << i;
    }
  }
}

TEST_P(Reduce, HalvesAreReducedInFp32AndRoundedOnce) {
  const IsaOverride isa(GetParam());
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (ReduceOp op : kOps) {
      for (size_t n : sizes()) {
        std::vector<uint16_t> a = halves(dtype, n, 1), b = halves(dtype, n, 2), c = halves(dtype, n, 3);
        std::vector<float> two(n), three(n);
        for (size_t i = 0; i < n; ++i) {
          two[i] = expected(op, widen(dtype, a[i]), widen(dtype, b[i]));
          three[i] = expected(op, two[i], widen(dtype, c[i]));
        }
        std::vector<uint16_t> dst = a, all(n);
        reduce(op, dtype, bytes_of(dst), bytes_of(b));
        expect_same_halves(dtype, dst, two);
        const std::vector<std::span<const std::byte>> inputs = {bytes_of(a), bytes_of(b), bytes_of(c)};
        reduce(op, dtype, bytes_of(all), inputs);
        expect_same_halves(dtype, all, three);
      }
    }
  }
}

TEST_P(Reduce, DivideMakesMeans) {
  const IsaOverride isa(GetParam());
  std::vector<float> floats = {1, 2, -7, 0};
  divide(DType::kFloat32, bytes_of(floats), 4);
  EXPECT_EQ(floats, (std::vector<float>{0.25f, 0.5f, -1.75f, 0}));
  std::vector<double> doubles = {1, -7};
  divide(DType::kFloat64, bytes_of(doubles), 3);
  EXPECT_EQ(doubles, (std::vector<double>{1.0 / 3, -7.0 / 3}));
  std::vector<int32_t> ints = {7, -7, 8};
  divide(DType::kInt32, bytes_of(ints), 4);
  EXPECT_EQ(ints, (std::vector<int32_t>{1, -1, 2}));
  std::vector<int64_t> longs = {int64_t{7} << 40, -7};
  divide(DType::kInt64, bytes_of(longs), 2);
  EXPECT_EQ(longs, (std::vector<int64_t>{int64_t{7} << 39, -3}));
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<uint16_t> x = halves(dtype, 3000, 5), before = x;
    divide(dtype, bytes_of(x), 3);
    std::vector<float> wanted;
    for (uint16_t half : before) wanted.push_back(widen(dtype, half) / 3);
    expect_same_halves(dtype, x, wanted);
  }
}

TEST(ReduceMisuse, IsRefusedBeforeAnythingChanges) {
  std::vector<int32_t> x = {1, 2, 3}, y = {4, 5};
  const auto whole = bytes_of(x);
  EXPECT_THROW(reduce(ReduceOp::kSum, DType::kInt32, whole, bytes_of(y)), Error);
  EXPECT_THROW(reduce(ReduceOp::kSum, DType::kInt64, whole, whole), Error) << "no whole number of elements";
  EXPECT_THROW(reduce(ReduceOp::kSum, DType::kByte, whole, whole), Error);
  EXPECT_THROW(reduce(static_cast<ReduceOp>(3), DType::kInt32, whole, whole), Error);
  EXPECT_THROW(reduce(ReduceOp::kSum, DType::kInt32, whole.subspan(1, 4), whole.subspan(0, 4)), Error);
  EXPECT_THROW(reduce(ReduceOp::kSum, DType::kInt32, whole, std::span<const std::span<const std::byte>>{}), Error);
  EXPECT_THROW(divide(DType::kInt32, whole, 0), Error);
  EXPECT_THROW(divide(DType::kByte, whole, 2), Error);
  EXPECT_EQ(x, (std::vector<int32_t>{1, 2, 3}));
}

}  // namespace
}  // namespace virga::kernel
