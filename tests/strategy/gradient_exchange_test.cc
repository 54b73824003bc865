// One rank alone, on the real Job: what does not need others. Several ranks: tests/end_to_end, tests/python.
#include "virga/strategy/gradient_exchange.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace virga::strategy {
namespace {

const std::vector<Parameter> kParameters = {{"a", 3}, {"b", 4}, {"c", 1}};

class Alone : public ::testing::Test {
 protected:
  GradientExchange make(const std::string& strategy, double density = 0.5, const std::string& policy = "error") {
    ExchangeOptions options;
    options.strategy = strategy;
    options.strategy_options.density = density;
    options.strategy_options.value_dtype = DType::kFloat32;
    options.non_finite = parse_non_finite_policy(policy);
    options.bucket_bytes = 16;
    return GradientExchange(job_, kParameters, gradients_, options);
  }
  bool step(GradientExchange& exchange, const std::vector<float>& gradients) {
    std::copy(gradients.begin(), gradients.end(), gradients_.begin());  // the exchange knows the memory
    for (size_t i : {1, 0, 2}) exchange.ready(i);
    return exchange.finish();
  }

  cluster::Job job_;
  std::vector<float> gradients_ = std::vector<float>(8);
};

TEST_F(Alone, TheMeanOfOneIsItself) {
  GradientExchange exchange = make("allreduce");
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(step(exchange, values));
    EXPECT_EQ(gradients_, values);
  }
}

TEST_F(Alone, BucketsAreTimed) {
  GradientExchange exchange = make("allreduce");
  step(exchange, std::vector<float>(8, 1.0f));
  ASSERT_EQ(exchange.exchange_spans().size(), exchange.plan().buckets.size());
  for (const TimeSpan& span : exchange.exchange_spans()) EXPECT_GE(span.end, span.begin);
}

TEST_F(Alone, AParameterIsReadyOnceAStep) {
  GradientExchange exchange = make("allreduce");
  exchange.ready(1);
  EXPECT_THROW(exchange.ready(1), Error);
}

TEST_F(Alone, AnIncompleteStepIsRefusedAndTheNextOneWorks) {
  GradientExchange exchange = make("allreduce");
  exchange.ready(2);
  EXPECT_THROW(exchange.finish(), Error);
  EXPECT_TRUE(step(exchange, std::vector<float>(8, 2.0f)));
}

TEST_F(Alone, PoliciesForNonFiniteGradients) {
  std::vector<float> bad(8, 1.0f);
  bad[4] = std::nanf("");
  GradientExchange skip = make("hitopk", 0.5, "skip-step");
  EXPECT_FALSE(step(skip, bad));
  EXPECT_TRUE(step(skip, std::vector<float>(8)));
  GradientExchange keep = make("hitopk", 0.5, "keep");
  EXPECT_FALSE(step(keep, bad));
  GradientExchange error = make("hitopk");
  EXPECT_THROW(step(error, bad), Error);
  EXPECT_THROW(parse_non_finite_policy("ignore"), Error);
}

// What the sparse strategy has not sent is in the first step of the dense one, and in no later one.
TEST_F(Alone, AChangeOfStrategyLosesNothing) {
  GradientExchange exchange = make("hitopk", 0.25);
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  step(exchange, values);
  std::vector<float> total = gradients_;
  EXPECT_NE(total, values);
  exchange.set_strategy("allreduce", {});
  EXPECT_TRUE(exchange.residuals().empty());
  for (int i = 0; i < 2; ++i) {
    step(exchange, std::vector<float>(8));
    for (size_t e = 0; e < total.size(); ++e) total[e] += gradients_[e];
    EXPECT_EQ(total, values);
  }
}

TEST_F(Alone, AStepThatIsSkippedAfterAChangeOfStrategyLosesNothing) {
  for (const char* next : {"allreduce", "fp16", "topk", "hitopk"}) {
    GradientExchange exchange = make("hitopk", 0.25, "skip-step");
    const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
    step(exchange, values);
    std::vector<float> total = gradients_;
    exchange.set_strategy(next, {.density = 1, .value_dtype = DType::kFloat32});
    const float inf = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(step(exchange, {inf, 0, 0, 0, 0, 0, 0, inf}));
    EXPECT_TRUE(step(exchange, std::vector<float>(8)));
    EXPECT_TRUE(exchange.carried().empty());
    for (size_t e = 1; e < 7; ++e) EXPECT_EQ(total[e] + gradients_[e], values[e]) << next << ", element " << e;
  }
}

TEST_F(Alone, WhatIsCarriedCanBeRead) {
  GradientExchange exchange = make("hitopk", 0.25);
  step(exchange, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<float> kept(exchange.residuals()[0].values.begin(), exchange.residuals()[0].values.end());
  EXPECT_TRUE(exchange.carried().empty());
  exchange.set_strategy("allreduce", {});
  const std::vector<Residual> carried = exchange.carried();
  ASSERT_FALSE(carried.empty());
  EXPECT_TRUE(std::ranges::equal(carried[0].values, kept));
}

TEST_F(Alone, AnUnknownStrategyLeavesTheOldOne) {
  GradientExchange exchange = make("hitopk", 0.25);
  EXPECT_THROW(exchange.set_strategy("hitop", {}), Error);
  EXPECT_EQ(exchange.options().strategy, "hitopk");
  EXPECT_EQ(exchange.strategy().density(), 0.25);
  EXPECT_TRUE(step(exchange, std::vector<float>(8, 1.0f)));
}

TEST_F(Alone, TheStrategyStaysInTheMiddleOfAStep) {
  GradientExchange exchange = make("allreduce");
  exchange.ready(0);
  EXPECT_THROW(exchange.set_strategy("topk", {}), Error);
}

TEST_F(Alone, WhatIsCarriedOverMustFit) {
  GradientExchange exchange = make("allreduce");
  const std::vector<float> three(3, 1.0f);
  EXPECT_THROW(exchange.carry_over(6, three), Error);
  exchange.carry_over(5, three);
  step(exchange, std::vector<float>(8));
  EXPECT_EQ(gradients_, (std::vector<float>{0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST_F(Alone, GradientsOfAnotherSizeAreRefused) {
  std::vector<float> short_of_one(7);
  EXPECT_THROW(GradientExchange(job_, kParameters, short_of_one, {}), Error);
}

}  // namespace
}  // namespace virga::strategy
