#include <gtest/gtest.h>
#include <tuple>

#include "virga/cluster/sim_job.h"
#include "virga/collective/allgather/allgather.h"
#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/alltoall/alltoall.h"
#include "virga/collective/barrier/barrier.h"
#include "virga/collective/broadcast/broadcast.h"
#include "virga/collective/gather/gather.h"
#include "virga/collective/neighbor_exchange/neighbor_exchange.h"
#include "virga/collective/reduce/reduce.h"
#include "virga/collective/reduce_scatter/reduce_scatter.h"
#include "virga/collective/scatter/scatter.h"

#include "collective/reference.h"

namespace virga::collective {
namespace {

using cluster::SimJob;
using namespace std::chrono_literals;

Task<void> allreduce_hierarchical(Comm& comm, std::vector<float>& data) {
  return allreduce(comm, comm.topology().world(), std::span(data), {Reduction::kSum, "hierarchical"});
}

net::sim::Options world(std::vector<int> ranks_per_host, uint64_t seed) {
  net::sim::Options options;
  options.ranks_per_host = std::move(ranks_per_host);
  options.seed = seed;
  return options;
}
net::sim::Options four_by_two(uint64_t seed) { return world({2, 2, 2, 2}, seed); }
net::sim::Options eight_by_one(uint64_t seed) { return world({1, 1, 1, 1, 1, 1, 1, 1}, seed); }

// Repeats allreduces until one fails.
Task<void> reduce_for_ever(Comm& comm, std::vector<float>& data, Choice choice) {
  const AllreduceOptions sum(Reduction::kSum, choice);
  while (true) co_await allreduce(comm, comm.topology().world(), std::span(data), sum);
}

enum class Fault { kKill, kPause, kCut };

class EveryFault : public ::testing::TestWithParam<Fault> {
 protected:
  static void strike(SimJob& job, Rank victim) {
    switch (GetParam()) {
      case Fault::kKill:
        return job.kill(victim);
      case Fault::kPause:
        return job.pause(victim);
      case Fault::kCut:
        return job.cut(job.world().host_of(victim));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Sim, EveryFault, ::testing::Values(Fault::kKill, Fault::kPause, Fault::kCut));

// Whenever a rank is lost, every survivor ends with an error that names one of the lost, in bounded time.
TEST_P(EveryFault, EverySurvivorNamesTheCulprit) {
  constexpr const char* kNames[] = {"hierarchical", "chain", "double_binary_tree"};
  for (int run = 0; run < 120; ++run) {
    const Choice choice(kNames[run % 3]);
    const int moment = run / 3;
    SCOPED_TRACE(fmt::format("{}, {}", choice.algorithm, moment));
    SimJob job(choice.algorithm == "double_binary_tree" ? eight_by_one(moment) : four_by_two(moment));
    const Rank victim = moment % 8;
    auto data = reference::random_vectors(8, 50'000, moment);
    const Time strike_at = 137us * (moment + 1);
    job.loop().call_at(strike_at, [&] { strike(job, victim); });
    const auto outcomes = job.run([&](Comm& comm) { return reduce_for_ever(comm, data[comm.rank()], choice); });
    EXPECT_LT(job.loop().now(), strike_at + 15s);
    for (Rank rank = 0; rank < job.size(); ++rank) {
      ASSERT_TRUE(outcomes[rank].has_value());
      if (!job.world().responsive(rank)) continue;
      const Rank culprit = outcomes[rank]->culprit();
      ASSERT_GE(culprit, 0) << outcomes[rank]->what();
      EXPECT_FALSE(job.world().responsive(culprit)) << "rank " << rank << " blames: " << outcomes[rank]->what();
    }
  }
}

// Two replicas' buckets of the same size, in another order on rank 3.
TEST(Disagreement, OperationsForDifferentPurposesDoNotMix) {
  SimJob job(four_by_two(1));
  auto first = reference::random_vectors(8, 1000, 1), second = reference::random_vectors(8, 1000, 2);
  const auto begin = [](Comm& comm, uint64_t purpose, std::vector<float>& data) {
    const Comm::Purpose mine(comm, purpose);
    return allreduce_hierarchical(comm, data);
  };
  const auto outcomes = job.run([&](Comm& comm) -> Task<void> {
    const uint64_t crossed = comm.rank() == 3 ? 1 : 0;
    Task<void> one = begin(comm, 10 + crossed, first[comm.rank()]);
    Task<void> other = begin(comm, 11 - crossed, second[comm.rank()]);
    co_await std::move(one);
    co_await std::move(other);
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->code(), ErrorCode::kMismatch) << outcome->what();
  }
}

TEST(Disagreement, DifferentSizesNameTheDifferenceOnEveryRank) {
  SimJob job(four_by_two(1));
  auto data = reference::random_vectors(8, 1000, 1);
  data[5].resize(999);
  const auto outcomes = job.run([&](Comm& comm) { return allreduce_hierarchical(comm, data[comm.rank()]); });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->code(), ErrorCode::kMismatch);
    EXPECT_NE(std::string(outcome->what()).find("elements"), std::string::npos) << outcome->what();
  }
}

TEST(Disagreement, DifferentOperationsAndRoots) {
  SimJob job(four_by_two(1));
  auto data = reference::random_vectors(8, 1000, 1);
  const auto outcomes = job.run([&](Comm& comm) {
    if (comm.rank() == 6) return broadcast(comm, comm.topology().world(), 0, std::span(data[comm.rank()]));
    return allreduce_hierarchical(comm, data[comm.rank()]);
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->code(), ErrorCode::kMismatch) << outcome->what();
    EXPECT_NE(std::string(outcome->what()).find("broadcast"), std::string::npos) << outcome->what();
  }
  SimJob roots(four_by_two(2));
  // A root may have sent all it had before anybody could object; the next operation tells it.
  const auto split = roots.run([&](Comm& comm) -> Task<void> {
    const Vector mine{std::span(data[comm.rank()])};
    co_await broadcast(comm, comm.topology().world(), comm.rank() < 4 ? 0 : 3, mine, "chain");
    co_await barrier(comm, comm.topology().world());
  });
  for (const auto& outcome : split) {
    ASSERT_TRUE(outcome.has_value());
    EXPECT_NE(std::string(outcome->what()).find("root"), std::string::npos) << outcome->what();
  }
}

TEST(Disagreement, ARankThatNeverComesIsNamedAtTheDeadline) {
  net::sim::Options options;
  options.ranks_per_host = {1, 1};
  SimJob job(options);
  auto data = reference::random_vectors(2, 1000, 1);
  const auto outcomes = job.run([&](Comm& comm) -> Task<void> {
    comm.set_timeout(5s);
    if (comm.rank() == 1) co_return;
    co_await allreduce_hierarchical(comm, data[0]);
  });
  ASSERT_TRUE(outcomes[0].has_value());
  EXPECT_EQ(outcomes[0]->code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(outcomes[0]->culprit(), 1);
  EXPECT_LT(job.loop().now(), 6s);
}

TEST(WrongUse, ThrowsBeforeAnythingIsSent) {
  net::sim::Options options;
  options.ranks_per_host = {1, 1};
  SimJob job(options);
  std::vector<float> data(10);
  Comm& comm = job.comm(0);
  const Vector vector{std::span(data)}, bytes{nullptr, 40, DType::kByte};
  const Group world = comm.topology().world();
  const auto refused = [](auto call) { EXPECT_THROW(std::ignore = call(), Error); };
  refused([&] { return broadcast(comm, world, 7, vector); });
  refused([&] { return reduce(comm, world, 7, vector, vector); });
  refused([&] { return gather(comm, world, 7, vector, vector); });
  refused([&] { return scatter(comm, world, 7, vector, vector); });
  refused([&] { return allreduce(comm, Group({1}), vector); });
  refused([&] { return allreduce(comm, Group({7, 0}), vector); });
  refused([&] { return allreduce(comm, world, vector, {Reduction::kSum, DType::kInt64}); });
  refused([&] { return allreduce(comm, world, vector, {Reduction::kMax, DType::kFloat16}); });
  refused([&] { return allreduce(comm, world, bytes); });
  refused([&] { return reduce_scatter(comm, world, bytes); });
  refused([&] { return reduce(comm, world, 0, vector, bytes); });
  refused([&] { return allgather(comm, world, vector, {4, 4}); });
  refused([&] { return allgather(comm, world, vector, {10}); });
  refused([&] { return allgather(comm, world, vector, {SIZE_MAX, 11}); });
  refused([&] { return gather(comm, world, 0, vector, vector); });  // the result has room for one part of two
  refused([&] { return alltoall(comm, world, vector, vector, {{1, 2}, {3}}); });
  refused([&] { return alltoall(comm, world, vector, vector, {{5, 4}, {5, 5}}); });
  refused([&] { return neighbor_exchange(comm, world, vector, vector, {{0}, {0}}); });
  refused([&] { return neighbor_exchange(comm, world, vector, vector, {{1, 1}, {0}}); });
  refused([&] { return neighbor_exchange(comm, world, vector, vector, {{2}, {0}}); });
  refused([&] { return allreduce(comm, world, vector, {Reduction::kSum, Choice("ring", 100)}); });
  EXPECT_EQ(job.world().host_bytes_sent(0), 0u);
}

}  // namespace
}  // namespace virga::collective
