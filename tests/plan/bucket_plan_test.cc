#include "virga/plan/bucket_plan.h"

#include <gtest/gtest.h>

#include "virga/base/error.h"
#include "virga/base/random.h"

namespace virga::plan {
namespace {

TEST(BucketPlan, ClosesABucketWhenItIsFull) {
  const std::vector<size_t> sizes = {10, 20, 30, 40};
  const BucketPlan plan = plan_buckets(sizes, 4 * 50);
  ASSERT_EQ(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.buckets[0], (Bucket{{30, 100}, {2, 4}}));
  EXPECT_EQ(plan.buckets[1], (Bucket{{0, 30}, {0, 2}}));
}

TEST(BucketPlan, EmptyModelHasNoBucket) {
  EXPECT_TRUE(plan_buckets({}, 1024).buckets.empty());
  EXPECT_EQ(parse_plan("buckets 0:", {}), plan_buckets({}, 1024));
}

TEST(BucketPlan, CoversEveryElementOnceAndSurvivesText) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<size_t> sizes(1 + random.below(30));
    for (size_t& size : sizes) size = random.below(5) == 0 ? 0 : random.below(1000);
    const BucketPlan plan = plan_buckets(sizes, 4 * (1 + random.below(2000)));
    size_t end = plan.elements, last = sizes.size();
    for (const Bucket& bucket : plan.buckets) {
      EXPECT_EQ(bucket.elements.end, end);
      EXPECT_EQ(bucket.parameters.end, last);
      end = bucket.elements.begin;
      last = bucket.parameters.begin;
    }
    EXPECT_EQ(end, 0u);
    EXPECT_EQ(last, 0u);
    EXPECT_EQ(parse_plan(to_text(plan), sizes), plan);
  }
}

TEST(BucketPlan, RefusesTextThatIsNoPlan) {
  const std::vector<size_t> sizes = {10, 20, 30};
  for (const char* text : {"", "buckets", "buckets 1", "buckets 1:", "buckets 1: 1", "buckets 2: 1 1", "buckets 1: 3",
                           "buckets 1: -1", "buckets 1: 0 0", "buckets 99999999999999999999: 0", "buckets 2: 0 1"}) {
    EXPECT_THROW(parse_plan(text, sizes), Error) << text;
  }
}

}  // namespace
}  // namespace virga::plan
