#include <cstring>
#include <gtest/gtest.h>
#include <memory>

#include "virga/runtime/task_group.h"

#include "collective/reference.h"
#include "collective/trial.h"
#include "contract/world.h"

namespace virga::collective {
namespace {

using reference::Vectors;

// A job on the real transport: all ranks in this process, on one loop. Ranks of one virtual host talk by shared memory,
// others by TCP on the loopback device.
class UcxJob {
 public:
  explicit UcxJob(const std::vector<int>& ranks_per_host) : world_(ranks_per_host, {}), worker_(world_.loop()) {
    std::vector<std::string> host_of;
    for (size_t host = 0; host < ranks_per_host.size(); ++host) {
      host_of.insert(host_of.end(), ranks_per_host[host], "host" + std::to_string(host));
    }
    for (Rank r = 0; r < world_.size(); ++r) {
      comms_.push_back(std::make_unique<Comm>(world_.at(r), worker_, cluster::Topology(host_of)));
    }
  }

  int size() const { return world_.size(); }
  Comm& comm(Rank rank) { return *comms_[rank]; }

  void run(const std::function<Task<void>(Comm&)>& body) {
    world_.run([&](net::Transport& transport) { return body(comm(transport.rank())); });
  }

 private:
  net::contract::UcxWorld world_;
  ThreadWorker worker_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

// The layouts of 1, 2, 3, 4 and 7 ranks: alone, all by TCP, all by shared memory, mixed.
const std::vector<std::vector<int>> kLayouts = {{1}, {1, 1}, {2}, {2, 1}, {1, 1, 1, 1}, {2, 2}, {2, 2, 2, 1}};

class OnUcx : public ::testing::TestWithParam<size_t> {
 protected:
  const std::vector<int>& layout() const { return kLayouts[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Ucx, OnUcx, ::testing::Range(size_t{0}, kLayouts.size()));

void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  if (actual.empty()) return;
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
}

TEST_P(OnUcx, DenseAllreducesEqualTheReference) {
  UcxJob job(layout());
  for (size_t elements : {size_t{1}, size_t{65537}, size_t{700'001}}) {
    for (bool half : {false, true}) {
      const DType wire = half ? DType::kFloat16 : DType::kFloat32;
      const AllreduceOptions by_ring(Reduction::kAverage, wire, {"ring", reference::kSliceBytes});
      const AllreduceOptions by_host(Reduction::kAverage, wire, {"hierarchical", reference::kSliceBytes});
      const Vectors before = reference::random_vectors(job.size(), elements, 3);
      Vectors ring = before, hierarchical = before;
      job.run([&](Comm& comm) -> Task<void> {
        const Vector first{std::span(ring[comm.rank()])}, second{std::span(hierarchical[comm.rank()])};
        co_await allreduce(comm, comm.topology().world(), first, by_ring);
        co_await allreduce(comm, comm.topology().world(), second, by_host);
      });
      for (const auto& result : ring) expect_same_bits(result, reference::ring(before, job.size(), half));
      const auto expected = reference::hierarchical(before, layout(), job.size(), half);
      for (const auto& result : hierarchical) expect_same_bits(result, expected);
    }
  }
}

// The simulator and the real network must give the same bits: what is tested on one holds on the other.
TEST_P(OnUcx, HiTopKGivesTheSimulatorsBits) {
  const size_t elements = 300'007;
  UcxJob job(layout());
  net::sim::Options world;
  world.ranks_per_host = layout();
  cluster::SimJob sim(world);
  const SparseOptions options(0.01, DType::kFloat16, Reduction::kAverage);
  std::vector<Selector> real_selectors, sim_selectors;
  for (Rank r = 0; r < job.size(); ++r) {
    const size_t residual = residual_range("hitopk", job.comm(r).topology(), r, elements).size();
    real_selectors.emplace_back(residual);
    sim_selectors.emplace_back(residual);
  }
  for (int step = 0; step < 3; ++step) {
    Vectors real = reference::random_vectors(job.size(), elements, step), simulated = real;
    job.run([&](Comm& comm) {
      const Vector data{std::span(real[comm.rank()])};
      return sparse_allreduce(comm, comm.topology().world(), data, options, real_selectors[comm.rank()], "hitopk");
    });
    sim.run_or_throw([&](Comm& comm) {
      const Vector data{std::span(simulated[comm.rank()])};
      return sparse_allreduce(comm, comm.topology().world(), data, options, sim_selectors[comm.rank()], "hitopk");
    });
    for (Rank r = 0; r < job.size(); ++r) expect_same_bits(real[r], simulated[0]);
  }
}

// Every algorithm on the real network: whole numbers, so that the judge needs no order.
TEST_P(OnUcx, EveryAlgorithmGivesTheResult) {
  UcxJob job(layout());
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->kind == OpKind::kSparseAllreduce) continue;
    for (size_t elements : {5, 100'003}) {
      trial::Trial trial{algorithm, elements, job.size()};
      trial.slice_bytes = size_t{64} << 10;
      if (!trial::fits(trial, job.comm(0).topology())) continue;
      for (int root : trial.roots()) {
        trial.root = root;
        SCOPED_TRACE(trial.text());
        trial::Memories memories(trial);
        job.run([&](Comm& comm) { return memories.call(comm); });
        memories.expect_right();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Many operations under way at once, as buckets of one backward pass are.
TEST_P(OnUcx, ManyOperationsOverlap) {
  UcxJob job(layout());
  const Vectors before = reference::random_vectors(job.size(), 20'000, 1);
  std::vector<Vectors> buckets(16, before);
  job.run([&](Comm& comm) -> Task<void> {
    std::vector<Task<void>> tasks;
    for (Vectors& bucket : buckets) {
      const Choice choice("hierarchical", reference::kSliceBytes);
      const Vector data{std::span(bucket[comm.rank()])};
      tasks.push_back(allreduce(comm, comm.topology().world(), data, {Reduction::kSum, choice}));
    }
    co_await when_all(std::move(tasks));
  });
  const auto expected = reference::hierarchical(before, layout(), 1, false);
  for (const auto& bucket : buckets) {
    for (const auto& result : bucket) expect_same_bits(result, expected);
  }
}

}  // namespace
}  // namespace virga::collective
