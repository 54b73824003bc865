// Every algorithm does what its operation promises: on every layout, for every dtype, reduction and root, for sizes
// around every border.
#include <gtest/gtest.h>

#include "collective/trial.h"

namespace virga::collective {
namespace {

using cluster::SimJob;
using trial::Trial;

net::sim::Options world(const std::vector<int>& layout, uint64_t seed) {
  net::sim::Options options;
  options.ranks_per_host = layout;
  options.seed = seed;
  options.latency_jitter = 2;  // so that the order of arrival differs from run to run
  return options;
}

void expect_right(const Trial& trial, const std::vector<int>& layout) {
  SCOPED_TRACE(trial.text());
  SimJob job(world(layout, trial.elements));
  if (!trial::fits(trial, job.comm(0).topology())) return;
  trial::Memories memories(trial);
  job.run_or_throw([&](Comm& comm) { return memories.call(comm); });
  memories.expect_right();
}

std::vector<Reduction> reductions(const Trial& trial) {
  if (!trial.reduces()) return {Reduction::kSum};
  return {Reduction::kSum, Reduction::kAverage, Reduction::kMin, Reduction::kMax};
}

class EveryAlgorithm : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  template <class Body>
  void for_every_layout(Body body) {
    if (GetParam()->kind == OpKind::kBarrier || GetParam()->kind == OpKind::kSparseAllreduce) {
      GTEST_SUCCEED() << "has tests of its own";
      return;
    }
    for (const auto& layout : trial::kLayouts) body(layout, trial::size_of_layout(layout));
  }
};
INSTANTIATE_TEST_SUITE_P(Sim, EveryAlgorithm, ::testing::ValuesIn(algorithms()), trial::test_name);

TEST_P(EveryAlgorithm, GivesTheResultOnEveryLayoutForEverySize) {
  for_every_layout([&](const std::vector<int>& layout, int members) {
    for (size_t elements : {0, 1, 7, 16, 1000, 65'537}) {
      for (bool uneven : {false, true}) {
        Trial trial{GetParam(), elements, members};
        trial.uneven = uneven;
        trial.slice_bytes = 4096;
        if (uneven && !trial.has_parts()) continue;
        for (int root : trial.roots()) {
          trial.root = root;
          expect_right(trial, layout);
          if (HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST_P(EveryAlgorithm, KnowsEveryDtypeAndReduction) {
  for_every_layout([&](const std::vector<int>& layout, int members) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32,
                        DType::kInt64, DType::kByte}) {
      Trial trial{GetParam(), 517, members};
      trial.dtype = dtype;
      if (trial.reduces() && dtype == DType::kByte) continue;
      trial.slice_bytes = 256;
      for (Reduction reduction : reductions(trial)) {
        trial.reduction = reduction;
        expect_right(trial, layout);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(EveryAlgorithm, TakesSlicesOfEveryLength) {
  for_every_layout([&](const std::vector<int>& layout, int members) {
    for (size_t slice_bytes : {64, 1024, 1 << 20}) {
      Trial trial{GetParam(), 3001, members};
      trial.slice_bytes = slice_bytes;
      expect_right(trial, layout);
      if (HasFatalFailure()) return;
    }
  });
}

// No rank may leave a barrier before the last one has come.
TEST(Barrier, HoldsUntilTheLast) {
  for (const auto& layout : trial::kLayouts) {
    SimJob job(world(layout, 6));
    Time last_in{0}, first_out = std::chrono::hours(1);
    job.run_or_throw([&](Comm& comm) -> Task<void> {
      co_await sleep_until(std::chrono::milliseconds(10 * ((comm.rank() * 7) % comm.world_size())));
      last_in = std::max(last_in, comm.loop().now());
      co_await barrier(comm, comm.topology().world());
      first_out = std::min(first_out, comm.loop().now());
    });
    EXPECT_GE(first_out, last_in);
  }
}

}  // namespace
}  // namespace virga::collective
