#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "virga/cluster/sim_job.h"
#include "virga/collective/sparse_allreduce/sparse_allreduce.h"

#include "collective/reference.h"

namespace virga::collective {
namespace {

using cluster::SimJob;
using reference::Vectors;

Task<void> exchange(Comm& comm, std::vector<float>& data, SparseOptions options, Selector& selector,
                    std::string_view algorithm) {
  return sparse_allreduce(comm, comm.topology().world(), std::span(data), options, selector, algorithm);
}

float rounded(float x, DType dtype) {
  if (dtype == DType::kFloat16) return half_to_float(float_to_half(std::clamp(x, -65504.0f, 65504.0f)));
  if (dtype == DType::kBFloat16) return bfloat16_to_float(float_to_bfloat16(x));
  return x;
}

// Adds a gradient to a residual and selects the top k of that by sorting everything.
std::vector<size_t> selected(std::vector<float>& residual, const std::vector<float>& gradient, float scale,
                             double density) {
  const size_t n = gradient.size();
  if (n == 0) return {};
  for (size_t i = 0; i < n; ++i) residual[i] += gradient[i] * scale;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::fabs(residual[a]) > std::fabs(residual[b]); });
  const size_t k = std::clamp<size_t>(std::llround(density * static_cast<double>(n)), 1, n);
  order.resize(k);
  return order;
}

// One member's step of top-k with error feedback: what it sends, dense.
std::vector<float> select(std::vector<float>& residual, const std::vector<float>& gradient, float scale, double density,
                          DType dtype) {
  std::vector<float> sent(gradient.size(), 0.0f);
  for (size_t e : selected(residual, gradient, scale, density)) {
    sent[e] = rounded(residual[e], dtype);
    residual[e] -= sent[e];
  }
  return sent;
}

std::vector<int> flat_layout(int ranks) { return std::vector<int>(ranks, 1); }

// hitopk in plain loops; residuals[host] covers the whole vector. Flat top-k is the case of one rank a host. The sum
// starts from zeros and takes hosts in order.
std::vector<float> hitopk_reference(const Vectors& ranks, const std::vector<int>& ranks_per_host, Vectors& residuals,
                                    const SparseOptions& options) {
  const size_t elements = ranks[0].size();
  const float scale = options.reduction == Reduction::kAverage ? 1.0f / static_cast<float>(ranks.size()) : 1.0f;
  const size_t owners = *std::min_element(ranks_per_host.begin(), ranks_per_host.end());
  Vectors hosts;
  size_t rank = 0;
  for (int count : ranks_per_host) {
    hosts.push_back(reference::sum_in_order(Vectors(ranks.begin() + rank, ranks.begin() + rank + count)));
    rank += count;
  }
  std::vector<float> result(elements);
  for (size_t owner = 0; owner < owners; ++owner) {
    const size_t begin = reference::cut(elements, owners, owner), end = reference::cut(elements, owners, owner + 1);
    for (size_t host = 0; host < hosts.size(); ++host) {
      std::vector<float> shard(hosts[host].begin() + begin, hosts[host].begin() + end);
      std::vector<float> residual(residuals[host].begin() + begin, residuals[host].begin() + end);
      const std::vector<float> sent = select(residual, shard, scale, options.density, options.value_dtype);
      for (size_t e = 0; e < sent.size(); ++e) result[begin + e] += sent[e];
      std::copy(residual.begin(), residual.end(), residuals[host].begin() + begin);
    }
  }
  return result;
}

using Message = std::map<size_t, float>;  // what travels: by index

// Two messages of gtopk become one.
void merge(Message& mine, const Message& theirs, std::vector<float>& residual, DType dtype) {
  const size_t k = mine.size();
  for (const auto& [index, value] : theirs) {
    if (!mine.emplace(index, value).second) mine[index] += value;
  }
  std::vector<std::pair<float, size_t>> order;
  for (const auto& [index, value] : mine) order.emplace_back(-std::fabs(value), index);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t index = order[i].second;
    const float kept = i < k ? rounded(mine[index], dtype) : 0;
    residual[index] += mine[index] - kept;
    mine[index] = kept;
    if (i >= k) mine.erase(index);
  }
}

void merge_all(std::vector<Message>& messages, const std::vector<size_t>& members, Vectors& residuals, DType dtype) {
  for (size_t distance = 1; distance < members.size(); distance *= 2) {
    for (size_t i = 0; i + distance < members.size(); i += 2 * distance) {
      merge(messages[members[i]], messages[members[i + distance]], residuals[members[i]], dtype);
    }
  }
}

std::vector<float> gtopk_reference(const Vectors& members, const std::vector<int>& ranks_per_host, Vectors& residuals,
                                   const SparseOptions& options) {
  const size_t elements = members[0].size();
  const float scale = options.reduction == Reduction::kAverage ? 1.0f / static_cast<float>(members.size()) : 1.0f;
  std::vector<Message> messages;
  for (size_t i = 0; i < members.size(); ++i) {
    Message message;
    for (size_t e : selected(residuals[i], members[i], scale, options.density)) {
      message[e] = rounded(residuals[i][e], options.value_dtype);
      residuals[i][e] -= message[e];
    }
    messages.push_back(message);
  }
  std::vector<size_t> firsts;
  size_t rank = 0;
  for (int count : ranks_per_host) {
    firsts.push_back(rank);
    std::vector<size_t> host;
    for (int local = 0; local < count; ++local) host.push_back(rank++);
    merge_all(messages, host, residuals, options.value_dtype);
  }
  merge_all(messages, firsts, residuals, options.value_dtype);
  std::vector<float> result(elements);
  for (const auto& [index, value] : messages[0]) result[index] = value;
  return result;
}

std::vector<float> balanced_reference(const Vectors& members, const std::vector<int>&, Vectors& residuals,
                                      const SparseOptions& options) {
  const size_t n = members.size(), elements = members[0].size();
  const float scale = options.reduction == Reduction::kAverage ? 1.0f / static_cast<float>(n) : 1.0f;
  std::vector<float> result;
  for (size_t owner = 0; owner < n; ++owner) {
    const size_t begin = reference::cut(elements, n, owner), end = reference::cut(elements, n, owner + 1);
    std::vector<float> sum(end - begin);
    for (size_t i = 0; i < n; ++i) {
      const std::vector<float> part(members[i].begin() + begin, members[i].begin() + end);
      std::vector<float> residual(residuals[i].begin() + begin, residuals[i].begin() + end);
      const std::vector<float> sent = select(residual, part, scale, options.density, options.value_dtype);
      for (size_t e = 0; e < sum.size(); ++e) sum[e] += sent[e];
      std::copy(residual.begin(), residual.end(), residuals[i].begin() + begin);
    }
    const std::vector<float> kept =
        select(sum, std::vector<float>(sum.size()), 1, options.density, options.value_dtype);
    result.insert(result.end(), kept.begin(), kept.end());
    for (size_t e = 0; e < sum.size(); ++e) residuals[owner][begin + e] += sum[e];
  }
  return result;
}

// Every member in turn adds what it has selected and rounds what it sends on.
std::vector<float> ring_reference(const Vectors& members, const std::vector<int>&, Vectors& residuals,
                                  const SparseOptions& options) {
  const size_t n = members.size(), elements = members[0].size();
  const float scale = options.reduction == Reduction::kAverage ? 1.0f / static_cast<float>(n) : 1.0f;
  std::vector<float> result;
  for (size_t owner = 0; owner < n; ++owner) {
    const size_t begin = reference::cut(elements, n, owner), end = reference::cut(elements, n, owner + 1);
    std::vector<float> sum(end - begin);
    for (size_t step = 1; step <= n; ++step) {
      const size_t i = (owner + step) % n;
      const std::vector<float> part(members[i].begin() + begin, members[i].begin() + end);
      std::vector<float> residual(residuals[i].begin() + begin, residuals[i].begin() + end);
      const std::vector<float> sent = select(residual, part, scale, options.density, options.value_dtype);
      for (size_t e = 0; e < sum.size(); ++e) {
        sum[e] += sent[e];
        const float kept = rounded(sum[e], options.value_dtype);
        residuals[i][begin + e] = residual[e] + (sum[e] - kept);
        sum[e] = kept;
      }
    }
    result.insert(result.end(), sum.begin(), sum.end());
  }
  return result;
}

void expect_same(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t e = 0; e < actual.size(); ++e) ASSERT_EQ(actual[e], expected[e]) << "element " << e;
}

net::sim::Options world(const std::vector<int>& ranks_per_host, uint64_t seed) {
  net::sim::Options options;
  options.ranks_per_host = ranks_per_host;
  options.seed = seed;
  options.latency_jitter = 2;
  return options;
}

const std::vector<std::vector<int>> kLayouts = {{1},          {2},       {1, 1}, {2, 1},       {1, 1, 1},
                                                {2, 2},       {1, 3},    {5},    {1, 1, 1, 1}, {2, 3},
                                                {2, 2, 2, 1}, {3, 1, 3}, {4, 4}, {3, 2, 4},    {2, 3, 3, 1}};

class SparseOnEveryLayout : public ::testing::TestWithParam<size_t> {
 protected:
  const std::vector<int>& layout() const { return kLayouts[GetParam()]; }
  int ranks() const { return std::accumulate(layout().begin(), layout().end(), 0); }
};
INSTANTIATE_TEST_SUITE_P(Sim, SparseOnEveryLayout, ::testing::Range(size_t{0}, kLayouts.size()));

// Three steps, so that residuals matter; sizes around every border; densities from one element to all.
TEST_P(SparseOnEveryLayout, HiTopKEqualsTheReference) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (double density : {1e-9, 0.01, 0.3, 1.0}) {
      for (size_t elements : {0, 1, 5, 3001, 70'000}) {
        if (elements == 70'000 && density != 0.01) continue;
        for (const char* algorithm : {"hitopk", "hitopk_circulant"}) {
          SCOPED_TRACE(fmt::format("{} {} density {} elements {}", algorithm, to_string(dtype), density, elements));
          const SparseOptions options(density, dtype, Reduction::kAverage);
          SimJob job(world(layout(), elements));
          std::vector<Selector> selectors;
          for (Rank r = 0; r < ranks(); ++r) {
            selectors.emplace_back(residual_range(algorithm, job.comm(r).topology(), r, elements).size());
          }
          Vectors residuals(layout().size(), std::vector<float>(elements));
          for (int step = 0; step < 3; ++step) {
            const Vectors gradients = reference::random_vectors(ranks(), elements, step + 1);
            Vectors results = gradients;
            job.run_or_throw([&](Comm& comm) {
              return exchange(comm, results[comm.rank()], options, selectors[comm.rank()], algorithm);
            });
            const auto expected = hitopk_reference(gradients, layout(), residuals, options);
            for (const auto& result : results) expect_same(result, expected);
          }
        }
      }
    }
  }
}

TEST_P(SparseOnEveryLayout, FlatEqualsTheReference) {
  for (const char* algorithm : {"flat", "flat_circulant"}) {
    const size_t elements = 5003;
    const SparseOptions options(0.01, DType::kFloat16, Reduction::kAverage);
    SimJob job(world(layout(), 3));
    std::vector<Selector> selectors;
    for (Rank r = 0; r < ranks(); ++r) selectors.emplace_back(elements);
    Vectors residuals(ranks(), std::vector<float>(elements));
    for (int step = 0; step < 3; ++step) {
      const Vectors gradients = reference::random_vectors(ranks(), elements, step + 1);
      Vectors results = gradients;
      job.run_or_throw(
          [&](Comm& comm) { return exchange(comm, results[comm.rank()], options, selectors[comm.rank()], algorithm); });
      const auto expected = hitopk_reference(gradients, flat_layout(ranks()), residuals, options);
      for (const auto& result : results) expect_same(result, expected);
    }
  }
}

using Reference = std::vector<float> (*)(const Vectors& gradients, const std::vector<int>& layout, Vectors& residuals,
                                         const SparseOptions& options);

// Every result and every residual, since they say who keeps what on the way is left out.
void expect_every_bit(std::string_view algorithm, const std::vector<int>& layout, Reference reference) {
  const int ranks = std::accumulate(layout.begin(), layout.end(), 0);
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (double density : {1e-9, 0.01, 0.3, 1.0}) {
      for (size_t elements : {0, 1, 5, 3001}) {
        SCOPED_TRACE(fmt::format("{} density {} elements {}", to_string(dtype), density, elements));
        const SparseOptions options(density, dtype, Reduction::kAverage);
        SimJob job(world(layout, elements));
        std::vector<Selector> selectors(static_cast<size_t>(ranks), Selector(elements));
        Vectors residuals(ranks, std::vector<float>(elements));
        for (int step = 0; step < 3; ++step) {
          const Vectors gradients = reference::random_vectors(ranks, elements, step + 1);
          Vectors results = gradients;
          job.run_or_throw([&](Comm& comm) {
            return exchange(comm, results[comm.rank()], options, selectors[comm.rank()], algorithm);
          });
          const auto expected = reference(gradients, layout, residuals, options);
          for (const auto& result : results) expect_same(result, expected);
          for (Rank r = 0; r < ranks; ++r) {
            const std::span<const float> residual = selectors[r].feedback.residual();
            expect_same({residual.begin(), residual.end()}, residuals[r]);
          }
        }
      }
    }
  }
}

TEST_P(SparseOnEveryLayout, GTopKEqualsTheReference) { expect_every_bit("gtopk", layout(), gtopk_reference); }
TEST_P(SparseOnEveryLayout, RingEqualsTheReference) { expect_every_bit("ring", layout(), ring_reference); }
TEST_P(SparseOnEveryLayout, BalancedEqualsTheReference) { expect_every_bit("balanced", layout(), balanced_reference); }

// One rank's NaN reaches every rank, whatever the layout, and no residual becomes non-finite.
TEST_P(SparseOnEveryLayout, NonFiniteReachesEveryRankAndNoResidual) {
  const size_t elements = 1000;
  const SparseOptions options(0.01, DType::kFloat16, Reduction::kSum);
  for (float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    SimJob job(world(layout(), 3));
    std::vector<Selector> selectors;
    for (Rank r = 0; r < ranks(); ++r) {
      selectors.emplace_back(residual_range("hitopk", job.comm(r).topology(), r, elements).size());
    }
    Vectors data = reference::random_vectors(ranks(), elements, 1);
    data.back()[517] = poison;
    job.run_or_throw(
        [&](Comm& comm) { return exchange(comm, data[comm.rank()], options, selectors[comm.rank()], "hitopk"); });
    for (const auto& result : data) {
      EXPECT_TRUE(std::any_of(result.begin(), result.end(), [](float x) { return !std::isfinite(x); }));
    }
    for (const Selector& selector : selectors) {
      for (float x : selector.feedback.residual()) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST(SparseTraffic, IsTheFormula) {
  const size_t elements = 1 << 20;
  const std::vector<int> layout = {2, 2, 2};
  const SparseOptions options(0.01, DType::kFloat16, Reduction::kSum);
  SimJob job(world(layout, 1));
  job.run_or_throw([&](Comm& comm) -> Task<void> {  // phantom: sizes only
    Selector none(0);
    const Vector phantom(nullptr, elements, DType::kFloat32);
    co_await sparse_allreduce(comm, comm.topology().world(), phantom, options, none, "hitopk");
  });
  const double formula =
      2.0 * 2 * static_cast<double>(sparse_format(elements / 2, options.density, options.value_dtype).payload_bytes());
  for (int host = 0; host < 3; ++host) {
    EXPECT_NEAR(static_cast<double>(job.world().host_bytes_sent(host)), formula, 0.01 * formula);
  }
}

// What one of `members` hosts sends, and what it sends of a vector of k elements in one message.
struct Traffic {
  double sent, message;
};
Traffic traffic(std::string_view algorithm, int members, double density, DType wire) {
  const size_t elements = 1 << 20;
  SimJob job(world(flat_layout(members), 1));
  Shape shape;
  shape.kind = OpKind::kSparseAllreduce;
  shape.elements = elements;
  shape.density = density;
  shape.wire = wire;
  shape.layout = std::make_shared<const cluster::Topology>(job.comm(0).topology());
  Ledger ledger(*shape.layout, cluster::kOrdinaryFigures);
  find_algorithm(shape.kind, algorithm).charge(shape, ledger);
  return {static_cast<double>(ledger.sent(members / 2).bytes),
          static_cast<double>(sparse_format(elements, density, wire).payload_bytes())};
}

// But for what each part's own flag and padding take.
TEST(SparseTraffic, OfBalancedIsTwoMessagesHoweverManyMembers) {
  for (int members : {2, 5, 16, 64}) {
    const Traffic bytes = traffic("balanced", members, 0.01, DType::kFloat32);
    EXPECT_NEAR(bytes.sent, 2.0 * (members - 1) / members * bytes.message, 0.05 * bytes.message) << members;
  }
}

// Of one that doesn't fold into others it is one up and one for each of few children down.
TEST(SparseTraffic, OfGTopKIsAFewMessagesHoweverManyMembers) {
  for (int members : {4, 16, 64}) {
    const Traffic bytes = traffic("gtopk", members, 0.01, DType::kFloat32);
    EXPECT_LE(bytes.sent, (1 + std::log2(members)) * bytes.message) << members;
  }
}

TEST(SparseTraffic, OfTheRingIsThatOfTheSparseOneOrOfTheDenseOne) {
  for (int members : {2, 5, 16, 64}) {
    for (DType wire : {DType::kFloat32, DType::kFloat16}) {
      const double dense = 2.0 * (members - 1) / members * static_cast<double>(size_of(wire) << 20);
      for (double density : {0.001, 0.01, 0.1, 1.0}) {
        const Traffic bytes = traffic("ring", members, density, wire);
        EXPECT_LE(bytes.sent, 1.001 * dense) << members << " " << density;
        EXPECT_LE(bytes.sent, 1.55 * (members - 1) * bytes.message) << members << " " << density;
        if (density == 1) {
          EXPECT_GE(bytes.sent, 0.999 * dense) << members;
        }
      }
    }
  }
}

TEST(SparseWrongUse, BadDensitiesAndResidualsThrowAtOnce) {
  SimJob job(world({1, 1}, 1));
  std::vector<float> data(10);
  Selector right(10), wrong(9);
  const auto refused = [&](const SparseOptions& options, Selector& selector, std::string_view algorithm) {
    EXPECT_THROW(std::ignore = exchange(job.comm(0), data, options, selector, algorithm), Error);
  };
  for (double density : {0.0, -0.5, 1.5, std::nan("")}) {
    refused(SparseOptions(density, DType::kFloat16, Reduction::kSum), right, "hitopk");
  }
  refused(SparseOptions(0.1, DType::kFloat16, Reduction::kSum), wrong, "hitopk");
  refused(SparseOptions(0.1, DType::kFloat16, Reduction::kMax), right, "hitopk");
  refused(SparseOptions(0.1, DType::kFloat16, Reduction::kSum), right, "no such one");
  EXPECT_EQ(job.world().host_bytes_sent(0), 0u);
}

}  // namespace
}  // namespace virga::collective
