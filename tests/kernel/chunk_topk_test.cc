#include "virga/kernel/chunk_topk.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "virga/base/error.h"

#include "kernel/isa_helper.h"

namespace virga::kernel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The definition: within each chunk sort by magnitude, ties by index, take k, put them in order of index.
std::vector<uint32_t> reference(const std::vector<float>& x, size_t chunk, size_t k) {
  std::vector<uint32_t> all;
  for (size_t begin = 0; begin < x.size(); begin += chunk) {
    std::vector<uint32_t> order(std::min(chunk, x.size() - begin));
    std::iota(order.begin(), order.end(), static_cast<uint32_t>(begin));
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
    order.resize(std::min(k, order.size()));
    std::sort(order.begin(), order.end());
    all.insert(all.end(), order.begin(), order.end());
  }
  return all;
}

// What one chunk says about the next, what it doesn't, ties, signed zeros and the smallest floats.
struct Shape {
  const char* name;
  std::function<float(size_t i, Random& random)> at;
};
const std::vector<Shape> kShapes = {
    {"normal", [](size_t, Random& r) { return static_cast<float>(r.normal()); }},
    {"all equal", [](size_t, Random&) { return -3.5f; }},
    {"all zero", [](size_t i, Random&) { return i % 3 ? 0.0f : -0.0f; }},
    {"ascending", [](size_t i, Random&) { return static_cast<float>(i); }},
    {"descending", [](size_t i, Random&) { return -1 / static_cast<float>(i + 1); }},
    {"three values", [](size_t, Random& r) { return static_cast<float>(r.below(3)) - 1; }},
    {"mostly zero", [](size_t, Random& r) { return r.below(1000) ? 0.0f : 1.0f; }},
    {"layers", [](size_t i, Random& r) { return static_cast<float>(r.normal()) * (i / 5000 % 2 ? 1e30f : 1e-30f); }},
    {"subnormal",
     [](size_t, Random& r) { return std::numeric_limits<float>::denorm_min() * static_cast<float>(r.below(500)); }},
    {"largest", [](size_t i, Random&) { return i % 2 ? std::numeric_limits<float>::max() : -1e38f; }},
    {"heavy tail", [](size_t, Random& r) { return std::exp(8 * static_cast<float>(r.normal())); }},
};

std::vector<float> make(const Shape& shape, size_t n) {
  Random random(n);
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = shape.at(i, random);
  return x;
}

class ChunkTopKTest : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, ChunkTopKTest, kAllIsas, isa_name);

void expect_exact(const Selection& selection, const std::vector<float>& x, size_t chunk, size_t k, const char* what) {
  ASSERT_TRUE(selection.finite);
  const std::vector<uint32_t> got(selection.indices.begin(), selection.indices.end());
  ASSERT_EQ(got.size(), chunk_topk_count(x.size(), chunk, k));
  ASSERT_EQ(got, reference(x, chunk, k)) << what << ", " << k << " of every " << chunk << " of " << x.size();
  ASSERT_EQ(selection.values.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(selection.values[i]), std::bit_cast<uint32_t>(x[got[i]]));
  }
}

TEST_P(ChunkTopKTest, EqualsTheSortOfEveryChunk) {
  const IsaOverride isa(GetParam());
  ChunkTopK topk;  // one workspace for all: nothing of one call may leak into the next
  for (const Shape& shape : kShapes) {
    for (size_t n :
         {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4095}, size_t{4097}, size_t{30001}, size_t{100'001}}) {
      const std::vector<float> x = make(shape, n);
      for (const auto& [chunk, k] : std::vector<std::pair<size_t, size_t>>{{1, 1},
                                                                           {2, 1},
                                                                           {64, 1},
                                                                           {64, 63},
                                                                           {65, 65},
                                                                           {1000, 17},
                                                                           {4096, 64},
                                                                           {4097, 1},
                                                                           {9000, 5000},
                                                                           {40000, 64},
                                                                           {n, 1}}) {
        expect_exact(topk.select(x, chunk, k), x, chunk, k, shape.name);
      }
    }
  }
}

TEST_P(ChunkTopKTest, EverySizeOfAShortLastChunk) {
  const IsaOverride isa(GetParam());
  ChunkTopK topk;
  for (size_t n = 0; n < 200; ++n) {
    const std::vector<float> x = make(kShapes[n % kShapes.size()], n);
    for (size_t k : {1, 7, 64}) expect_exact(topk.select(x, 64, k), x, 64, k, kShapes[n % kShapes.size()].name);
  }
}

TEST_P(ChunkTopKTest, NothingIsSelectedIfAnyLaneIsNotFinite) {
  const IsaOverride isa(GetParam());
  ChunkTopK topk;
  for (size_t n : {size_t{1}, size_t{9}, size_t{67}, size_t{9000}}) {
    std::vector<float> x = normals(n, 5);
    for (size_t i = 0; i<n; i += n> 100 ? 97 : 1) {
      for (float bad : {std::nanf(""), -std::nanf(""), kInf, -kInf}) {
        const float kept = std::exchange(x[i], bad);
        const Selection selection = topk.select(x, 64, 3);
        ASSERT_FALSE(selection.finite) << i << " of " << n;
        ASSERT_TRUE(selection.indices.empty() && selection.values.empty());
        x[i] = kept;
      }
    }
    EXPECT_TRUE(topk.select(x, 64, 3).finite);
  }
  EXPECT_FALSE(topk.select(std::vector<float>(10000, std::nanf("")), 4096, 64).finite);
  EXPECT_FALSE(topk.select(std::vector<float>(10000, -kInf), 64, 64).finite);
}

TEST(ChunkTopKArguments, WrongUseIsRefused) {
  ChunkTopK topk;
  const std::vector<float> x(10);
  for (const auto& [chunk, k] : std::vector<std::pair<size_t, size_t>>{{0, 0}, {4, 0}, {4, 5}, {0, 1}}) {
    try {
      topk.select(x, chunk, k);
      ADD_FAILURE() << k << " of " << chunk << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
  EXPECT_TRUE(topk.select({}, 4, 2).finite);
  EXPECT_EQ(topk.select({}, 4, 2).indices.size(), 0u);
}

}  // namespace
}  // namespace virga::kernel
