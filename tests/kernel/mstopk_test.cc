#include "virga/kernel/mstopk.h"

#include <algorithm>
#include <cmath>

#include "virga/base/error.h"

#include "kernel/isa_helper.h"

namespace virga::kernel {
namespace {

class MsTopKTest : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, MsTopKTest, kAllIsas, isa_name);

void expect_well_formed(const Selection& selection, const std::vector<float>& x, size_t k) {
  ASSERT_TRUE(selection.finite);
  ASSERT_EQ(selection.indices.size(), k);
  for (size_t i = 0; i < k; ++i) {
    if (i > 0) {
      ASSERT_LT(selection.indices[i - 1], selection.indices[i]);
    }
    ASSERT_LT(selection.indices[i], x.size());
    ASSERT_EQ(selection.values[i], x[selection.indices[i]]);
  }
}

TEST_P(MsTopKTest, GivesExactlyKWhateverTheInput) {
  const IsaOverride isa(GetParam());
  MsTopK mstopk;
  for (size_t n : {size_t{1}, size_t{7}, size_t{1000}, size_t{65537}}) {
    std::vector<float> few(n);
    for (size_t i = 0; i < n; ++i) few[i] = static_cast<float>(i % 3);
    for (const auto& x : {normals(n, 1), std::vector<float>(n, 2.0f), std::vector<float>(n), few}) {
      for (size_t k : {size_t{1}, std::max<size_t>(1, n / 100), n}) {
        for (int iterations : {1, 30}) expect_well_formed(mstopk.select(x, k, iterations, 9), x, k);
      }
    }
  }
}

TEST_P(MsTopKTest, FindsTheTrueTopAfterThirtyIterations) {
  const IsaOverride isa(GetParam());
  const std::vector<float> x = normals(65537, 2);
  TopK topk;
  const Selection exact = topk.select(x, 655);
  MsTopK mstopk;
  const Selection approximate = mstopk.select(x, 655, 30, 1);
  EXPECT_TRUE(
      std::equal(exact.indices.begin(), exact.indices.end(), approximate.indices.begin(), approximate.indices.end()));
}

TEST(MsTopKArguments, NonFiniteAndWrongUse) {
  MsTopK mstopk;
  EXPECT_FALSE(mstopk.select(std::vector<float>{1, std::nanf(""), 2}, 1, 30, 1).finite);
  EXPECT_TRUE(mstopk.select({}, 0, 30, 1).finite);
  EXPECT_THROW(mstopk.select(std::vector<float>(3), 4, 30, 1), Error);
  EXPECT_THROW(mstopk.select(std::vector<float>(3), 1, 0, 1), Error);
}

}  // namespace
}  // namespace virga::kernel
