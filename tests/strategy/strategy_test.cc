#include "virga/strategy/strategy.h"

#include <cmath>
#include <gtest/gtest.h>

#include "virga/base/random.h"
#include "virga/cluster/sim_job.h"

namespace virga::strategy {
namespace {

using cluster::SimJob;
using collective::Comm;
using collective::Vector;

net::sim::Options world() {
  net::sim::Options options;
  options.ranks_per_host = {2, 1, 2};
  return options;
}

const std::vector<size_t> kParameters = {700, 20, 3000, 1, 555};

class Rig {
 public:
  explicit Rig(std::string_view name, StrategyOptions options = {}) : job_(world()), options_(options) {
    for (Rank r = 0; r < job_.size(); ++r) {
      strategies_.push_back(make_strategy(name, {job_.comm(r).topology(), r, plan_, options_}));
    }
  }

  // One step: every rank's gradient in, what every rank holds afterwards out.
  std::vector<std::vector<float>> step(std::vector<std::vector<float>> gradients) {
    job_.run_or_throw([&](Comm& comm) -> Task<void> {
      for (size_t b = 0; b < plan_.buckets.size(); ++b) {
        const pattern::Range range = plan_.buckets[b].elements;
        const Vector bucket(std::span(gradients[comm.rank()]).subspan(range.begin, range.size()));
        co_await strategies_[comm.rank()]->exchange(comm, b, bucket);
      }
    });
    return gradients;
  }
  void end_step(bool applied) {
    for (auto& strategy : strategies_) strategy->end_step(applied);
  }
  std::vector<std::vector<float>> random_gradients(uint64_t seed) const {
    std::vector<std::vector<float>> gradients(job_.size(), std::vector<float>(plan_.elements));
    for (size_t r = 0; r < gradients.size(); ++r) {
      Random random(seed, r);
      for (float& x : gradients[r]) x = static_cast<float>(random.normal());
    }
    return gradients;
  }

  // What all ranks keep, added up per element of the flat gradient.
  std::vector<double> residual_sum() const {
    std::vector<double> sum(plan_.elements);
    for (const auto& strategy : strategies_) {
      for (const Residual& residual : strategy->residuals()) {
        for (size_t i = 0; i < residual.values.size(); ++i) sum[residual.begin + i] += residual.values[i];
      }
    }
    return sum;
  }
  Strategy& mutable_strategy(Rank r) { return *strategies_[r]; }

  SimJob& job() { return job_; }
  const Strategy& strategy(Rank r) const { return *strategies_[r]; }

 private:
  SimJob job_;
  StrategyOptions options_;
  plan::BucketPlan plan_ = plan::plan_buckets(kParameters, 4000);
  std::vector<std::unique_ptr<Strategy>> strategies_;
};

std::vector<double> mean_of(const std::vector<std::vector<float>>& vectors) {
  std::vector<double> mean(vectors[0].size());
  for (const auto& v : vectors) {
    for (size_t e = 0; e < v.size(); ++e) mean[e] += static_cast<double>(v[e]) / static_cast<double>(vectors.size());
  }
  return mean;
}

class EveryStrategy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EveryStrategy, ::testing::Values("allreduce", "fp16", "topk", "hitopk"),
                         [](const auto& info) { return info.param; });

TEST_P(EveryStrategy, AllRanksHoldTheSameBits) {
  Rig rig(GetParam());
  for (uint64_t step = 0; step < 3; ++step) {
    const auto after = rig.step(rig.random_gradients(step));
    rig.end_step(true);
    for (const auto& vector : after) EXPECT_EQ(vector, after[0]);
  }
}

// What leaves in many steps of one gradient is that gradient's mean: nothing is lost, only late.
TEST_P(EveryStrategy, DeliversTheMeanInTheLongRun) {
  StrategyOptions options;
  options.density = 0.25;
  Rig rig(GetParam(), options);
  const auto gradients = rig.random_gradients(9);
  const auto mean = mean_of(gradients);
  const int steps = 60;
  std::vector<double> delivered(mean.size());
  for (int step = 0; step < steps; ++step) {
    const auto after = rig.step(gradients);
    rig.end_step(true);
    for (size_t e = 0; e < delivered.size(); ++e) delivered[e] += after[0][e];
  }
  for (size_t e = 0; e < delivered.size(); ++e) EXPECT_NEAR(delivered[e] / steps, mean[e], 0.15) << e;
}

TEST_P(EveryStrategy, BytesBetweenHostsAreTheFormula) {
  Rig rig(GetParam());
  rig.step(rig.random_gradients(1));
  double sent = 0;
  for (Rank from = 0; from < rig.job().size(); ++from) {
    for (Rank to = 0; to < rig.job().size(); ++to) {
      if (rig.job().world().host_of(from) == rig.job().world().host_of(to)) continue;
      sent += static_cast<double>(rig.job().comm(from).transport().traffic(to).bytes_sent);
    }
  }
  EXPECT_NEAR(sent / 3, rig.strategy(0).inter_host_bytes(), 0.01 * sent / 3);
}

// Every element of the mean is either delivered or in somebody's residual, in the place that residuals() says.
TEST_P(EveryStrategy, WhatIsNotDeliveredIsInTheResiduals) {
  StrategyOptions options;
  options.density = 0.1;
  options.value_dtype = DType::kFloat32;
  Rig rig(GetParam(), options);
  const auto gradients = rig.random_gradients(5);
  const auto mean = mean_of(gradients);
  const auto after = rig.step(gradients);
  rig.end_step(true);
  const auto kept = rig.residual_sum();
  const double tolerance = GetParam() == "fp16" ? 2e-3 : 1e-5;
  for (size_t e = 0; e < mean.size(); ++e) EXPECT_NEAR(after[0][e] + kept[e], mean[e], tolerance) << e;
}

std::vector<std::vector<float>> copies(const std::vector<Residual>& residuals) {
  std::vector<std::vector<float>> values;
  for (const Residual& residual : residuals) values.emplace_back(residual.values.begin(), residual.values.end());
  return values;
}

TEST_P(EveryStrategy, GoesOnExactlyFromSavedResiduals) {
  Rig first(GetParam()), second(GetParam());
  first.step(first.random_gradients(6));
  first.end_step(true);
  for (Rank r = 0; r < first.job().size(); ++r) {
    second.mutable_strategy(r).set_residuals(copies(first.strategy(r).residuals()));
  }
  EXPECT_EQ(first.step(first.random_gradients(7)), second.step(first.random_gradients(7)));
}

TEST_P(EveryStrategy, RefusesResidualsOfAnotherShapeAndChangesNothing) {
  Rig rig(GetParam());
  rig.step(rig.random_gradients(8));
  rig.end_step(true);
  const auto before = copies(rig.strategy(0).residuals());
  auto wrong = before;
  wrong.emplace_back(3);
  EXPECT_THROW(rig.mutable_strategy(0).set_residuals(wrong), Error);
  if (!before.empty()) {
    wrong = before;
    wrong.back().push_back(0);
    EXPECT_THROW(rig.mutable_strategy(0).set_residuals(wrong), Error);
    wrong = std::vector<std::vector<float>>(before);
    wrong.back().back() = std::nanf("");
    EXPECT_THROW(rig.mutable_strategy(0).set_residuals(wrong), Error);
  }
  EXPECT_EQ(copies(rig.strategy(0).residuals()), before);
}

// A skipped step must not lose what was selected in it.
TEST(SkippedStep, GoesBackToTheResidual) {
  StrategyOptions options;
  options.density = 0.01;
  options.value_dtype = DType::kFloat32;
  Rig skipping("hitopk", options);
  auto gradients = skipping.random_gradients(4);
  skipping.step(gradients);
  skipping.end_step(false);
  std::vector<std::vector<float>> zeros(gradients.size(), std::vector<float>(gradients[0].size()));
  const auto late = skipping.step(zeros);
  Rig plain("hitopk", options);
  const auto prompt = plain.step(gradients);
  EXPECT_EQ(late[0], prompt[0]);
}

TEST(MakeStrategy, UnknownNameListsTheKnownOnes) {
  const auto plan = plan::plan_buckets(kParameters, 4000);
  const cluster::Topology topology({"a", "b"});
  try {
    make_strategy("hitopkk", {topology, 0, plan, {}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown strategy 'hitopkk'; known are allreduce, fp16, topk, hitopk");
  }
}

TEST(MakeStrategy, BadDensityThrows) {
  const auto plan = plan::plan_buckets(kParameters, 4000);
  const cluster::Topology topology({"a", "b"});
  StrategyOptions options;
  for (double density : {0.0, -1.0, 1.01, std::nan("")}) {
    options.density = density;
    EXPECT_THROW(make_strategy("hitopk", {topology, 0, plan, options}), Error);
    EXPECT_THROW(make_strategy("topk", {topology, 0, plan, options}), Error);
  }
}

}  // namespace
}  // namespace virga::strategy
