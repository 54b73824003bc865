#include <cstring>
#include <functional>
#include <gtest/gtest.h>

#include "virga/cluster/sim_job.h"
#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/reduce/reduce.h"
#include "virga/collective/reduce_scatter/reduce_scatter.h"

#include "collective/reference.h"

namespace virga::collective {
namespace {

using cluster::SimJob;
using reference::Vectors;

const AllreduceOptions kHierarchicalSum(Reduction::kSum, "hierarchical");

struct Layout {
  std::vector<int> ranks_per_host;
  int ranks() const {
    int sum = 0;
    for (int r : ranks_per_host) sum += r;
    return sum;
  }
  // Whether some hosts have several ranks, and there are other hosts.
  bool mixed() const { return ranks_per_host.size() > 1 && ranks() > static_cast<int>(ranks_per_host.size()); }
};

const std::vector<Layout> kLayouts = {{{1}},       {{2}},    {{1, 1}},    {{3}},          {{2, 1}},
                                      {{1, 1, 1}}, {{2, 2}}, {{1, 3}},    {{1, 1, 1, 1}}, {{5}},
                                      {{2, 3}},    {{4, 2}}, {{2, 2, 2}}, {{3, 1, 3}},    {{2, 2, 2, 1}},
                                      {{4, 4}},    {{9}},    {{3, 2, 4}}, {{2, 3, 3, 1}}, {{1, 1, 1, 1, 1, 1, 1}}};
const std::vector<size_t> kSizes = {0, 1, 7, 65537, 600001};

net::sim::Options world(const Layout& layout, uint64_t seed) {
  net::sim::Options options;
  options.ranks_per_host = layout.ranks_per_host;
  options.seed = seed;
  options.latency_jitter = 2;  // so that the order of arrival differs from run to run
  return options;
}

void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  if (actual.empty() || std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) == 0) return;
  for (size_t e = 0; e < actual.size(); ++e) ASSERT_EQ(actual[e], expected[e]) << what << ", element " << e;
}

class EveryLayout : public ::testing::TestWithParam<size_t> {
 protected:
  const Layout& layout() const { return kLayouts[GetParam()]; }

  // Runs a collective on random vectors on every size and hands the results to `judge`.
  void for_every_size(const std::function<Task<void>(Comm&, Vector)>& collective,
                      const std::function<void(const Vectors& before, const Vectors& after)>& judge) {
    for (size_t elements : kSizes) {
      SCOPED_TRACE(elements);
      const Vectors before = reference::random_vectors(layout().ranks(), elements, elements + 1);
      Vectors after = before;
      SimJob job(world(layout(), elements));
      job.run_or_throw([&](Comm& comm) { return collective(comm, std::span(after[comm.rank()])); });
      judge(before, after);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Sim, EveryLayout, ::testing::Range(size_t{0}, kLayouts.size()));

TEST_P(EveryLayout, AllreducesAddUpInTheOrderThatTheyPromise) {
  for (bool half : {false, true}) {
    for (const char* name : {"ring", "hierarchical"}) {
      const Choice choice(name, reference::kSliceBytes);
      const AllreduceOptions mean(Reduction::kAverage, half ? DType::kFloat16 : DType::kFloat32, choice);
      for_every_size([&](Comm& comm, Vector data) { return allreduce(comm, comm.topology().world(), data, mean); },
                     [&](const Vectors& before, const Vectors& after) {
                       const int ranks = layout().ranks();
                       const auto expected =
                           std::string(name) == "ring"
                               ? reference::ring(before, ranks, half)
                               : reference::hierarchical(before, layout().ranks_per_host, ranks, half);
                       for (const auto& result : after) expect_same_bits(result, expected, name);
                     });
    }
  }
}

// Those that convert nothing.
TEST_P(EveryLayout, PlainAllreducesAddUpInTheOrderThatTheyPromise) {
  using Reference = std::vector<float> (*)(Vectors members, int divisor);
  constexpr std::pair<const char*, Reference> kOrders[] = {
      {"recursive_doubling", reference::recursive_doubling},
      {"halving_doubling", reference::halving_doubling},
      {"chain", reference::chain},
      {"double_binary_tree", reference::double_binary_tree},
  };
  for (const auto& entry : kOrders) {
    const char* name = entry.first;
    const Reference order = entry.second;
    if (order == reference::double_binary_tree && layout().mixed()) continue;  // it does not take them
    const AllreduceOptions mean(Reduction::kAverage, Choice(name, reference::kSliceBytes));
    for_every_size([&](Comm& comm, Vector data) { return allreduce(comm, comm.topology().world(), data, mean); },
                   [&](const Vectors& before, const Vectors& after) {
                     const auto expected = order(before, layout().ranks());
                     for (const auto& result : after) expect_same_bits(result, expected, name);
                   });
  }
}

TEST_P(EveryLayout, ReducesAddUpInTheOrderThatTheyPromise) {
  using Reference = std::vector<float> (*)(const Vectors& members, size_t root);
  constexpr std::pair<const char*, Reference> kOrders[] = {
      {"chain", reference::reduced_by_chain},
      {"binomial", reference::reduced_by_binomial_tree},
  };
  for (const auto& entry : kOrders) {
    const Choice choice(entry.first, 4096);
    for (Rank root : {0, layout().ranks() / 2}) {
      for_every_size(
          [&](Comm& comm, Vector data) {
            return reduce(comm, comm.topology().world(), root, data, data, Reduction::kSum, choice);
          },
          [&](const Vectors& before, const Vectors& after) {
            const auto expected = entry.second(before, static_cast<size_t>(root));
            expect_same_bits(after[static_cast<size_t>(root)], expected, entry.first);
          });
    }
  }
}

TEST_P(EveryLayout, ReduceScatterSumsInMemberOrder) {
  for_every_size(
      [&](Comm& comm, Vector data) {
        return reduce_scatter(comm, comm.topology().world(), data, Reduction::kSum, {}, "direct");
      },
      [&](const Vectors& before, const Vectors& after) {
        const auto sum = reference::sum_in_order(before);
        const size_t n = before.size();
        for (size_t rank = 0; rank < n; ++rank) {
          auto expected = before[rank];
          const size_t begin = reference::cut(sum.size(), n, rank), end = reference::cut(sum.size(), n, rank + 1);
          std::copy(sum.begin() + begin, sum.begin() + end, expected.begin() + begin);
          expect_same_bits(after[rank], expected, "rank " + std::to_string(rank));
        }
      });
}

// How element e of a member's part is added up.
using Sum = std::function<float(const Vectors& members, size_t part, size_t e)>;

TEST_P(EveryLayout, ReduceScattersAddUpInTheOrderThatTheyPromise) {
  const auto host_by_host = [&](const Vectors& members, size_t, size_t e) {
    return reference::host_by_host(members, layout().ranks_per_host, e);
  };
  const std::vector<std::pair<const char*, Sum>> promises = {
      {"hierarchical", host_by_host}, {"ring", reference::ring_part}, {"circulant", reference::circulant}};
  for (const auto& promise : promises) {
    const char* name = promise.first;
    const Sum& sum = promise.second;
    const Choice choice(name, 4096);
    for_every_size(
        [&](Comm& comm, Vector data) {
          return reduce_scatter(comm, comm.topology().world(), data, Reduction::kSum, {}, choice);
        },
        [&](const Vectors& before, const Vectors& after) {
          const size_t n = before.size(), elements = before[0].size();
          for (size_t rank = 0; rank < n; ++rank) {
            auto expected = before[rank];
            for (size_t e = reference::cut(elements, n, rank); e < reference::cut(elements, n, rank + 1); ++e) {
              expected[e] = sum(before, rank, e);
            }
            expect_same_bits(after[rank], expected, name + (", rank " + std::to_string(rank)));
          }
        });
  }
}

// bf16 on the wire keeps the range of fp32: what would be Inf in fp16 is not.
TEST_P(EveryLayout, Bfloat16OnTheWireKeepsLargeValues) {
  const int ranks = layout().ranks();
  Vectors data(ranks, std::vector<float>(1000, 98304.0f));  // exact in bf16, as are its sums over at most nine
  SimJob job(world(layout(), 1));
  job.run_or_throw([&](Comm& comm) {
    const AllreduceOptions sum(Reduction::kSum, DType::kBFloat16);
    return allreduce(comm, comm.topology().world(), std::span(data[comm.rank()]), sum);
  });
  const float expected = 98304.0f * static_cast<float>(ranks);
  for (const auto& result : data) EXPECT_NEAR(result[517], expected, expected / 64);
}

// Bytes between hosts must be what docs/algorithms.md says, headers apart.
TEST(Traffic, HierarchicalSendsTheFormulasBytes) {
  const Layout layout{{2, 2, 2, 2}};
  const size_t elements = 1 << 20;
  Vectors data = reference::random_vectors(layout.ranks(), elements, 1);
  SimJob job(world(layout, 1));
  job.run_or_throw([&](Comm& comm) {
    return allreduce(comm, comm.topology().world(), std::span(data[comm.rank()]), kHierarchicalSum);
  });
  const double formula = 2.0 * 3 / 4 * 4 * elements;
  for (int host = 0; host < 4; ++host) {
    EXPECT_NEAR(static_cast<double>(job.world().host_bytes_sent(host)), formula, 0.01 * formula);
  }
}

TEST(Pipelining, RingRunsNearTheBandwidthBound) {
  const Layout layout{{1, 1, 1, 1}};
  const size_t elements = 11'000'000;
  net::sim::Options options = world(layout, 1);
  options.latency_jitter = 0;
  SimJob job(options);
  job.run_or_throw([&](Comm& comm) {  // phantom: sizes only
    const Vector phantom(nullptr, elements, DType::kFloat32);
    return allreduce(comm, comm.topology().world(), phantom, {Reduction::kSum, Choice("ring", reference::kSliceBytes)});
  });
  const double bound = 2.0 * 3 / 4 * 4 * elements / 125e6;
  EXPECT_LT(to_seconds(job.loop().now()), 1.08 * bound);
  EXPECT_GE(to_seconds(job.loop().now()), bound);
}

// Those in the middle have finished slices to pass on as well, so that others could send faster than they can.
TEST(Pipelining, MembersKeepFewSlicesThatTheyCannotPassOn) {
  constexpr size_t kSlices = 1000, kBytes = size_t{64} << 10;
  for (const char* name : {"chain", "double_binary_tree"}) {
    for (int members : {2, 3, 8, 15}) {
      SCOPED_TRACE(fmt::format("{}, {} members", name, members));
      net::sim::Options options;
      options.ranks_per_host.assign(static_cast<size_t>(members), 1);
      options.limits.waiting_messages = kLanes * static_cast<size_t>(members - 1);
      SimJob job(options);
      job.run_or_throw([&](Comm& comm) {
        const Vector phantom(nullptr, kSlices * kBytes, DType::kInt32);
        return allreduce(comm, comm.topology().world(), phantom, {Reduction::kSum, Choice(name, kBytes)});
      });
    }
  }
}

TEST(Replay, TheSameSeedGivesTheSameRun) {
  const auto run = [](uint64_t seed) {
    const Layout layout{{2, 3, 1}};
    Vectors data = reference::random_vectors(layout.ranks(), 100'000, 1);
    SimJob job(world(layout, seed));
    job.run_or_throw([&](Comm& comm) {
      return allreduce(comm, comm.topology().world(), std::span(data[comm.rank()]), kHierarchicalSum);
    });
    return std::pair(job.loop().now(), data);
  };
  const auto first = run(1), again = run(1), other = run(2);
  EXPECT_EQ(first.first, again.first);
  EXPECT_NE(first.first, other.first);    // time depends on the seed,
  EXPECT_EQ(first.second, other.second);  // the result does not
}

}  // namespace
}  // namespace virga::collective
