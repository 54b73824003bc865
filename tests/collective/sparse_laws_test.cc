// What every sparse allreduce keeps: all members end with the same bits, nothing is lost between what comes out and the
// residuals, and nothing at all where a step is skipped. Whole numbers, which fp32 adds exactly, so that not even the
// last bit may be missing, although their sum is more than fp16 and bf16 can hold.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "virga/base/random.h"

#include "collective/reference.h"
#include "collective/trial.h"

namespace virga::collective {
namespace {

using cluster::SimJob;
using reference::Vectors;

std::vector<const Algorithm*> sparse_algorithms() {
  std::vector<const Algorithm*> found;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->kind == OpKind::kSparseAllreduce) found.push_back(algorithm);
  }
  return found;
}

class EverySparse : public ::testing::TestWithParam<const Algorithm*> {};
INSTANTIATE_TEST_SUITE_P(Sim, EverySparse, ::testing::ValuesIn(sparse_algorithms()), trial::test_name);

// Few large ones and many small ones, zeros among them; all below 2^12.
Vectors whole_numbers(int members, size_t elements, uint64_t seed) {
  Vectors vectors(static_cast<size_t>(members), std::vector<float>(elements));
  for (int member = 0; member < members; ++member) {
    Random random(seed, static_cast<uint64_t>(member));
    for (float& x : vectors[static_cast<size_t>(member)]) {
      const auto most = int64_t{1} << random.below(13);
      x = static_cast<float>(static_cast<int64_t>(random.below(static_cast<uint64_t>(2 * most))) - most);
    }
  }
  return vectors;
}

// All members of a job that do the same sparse allreduce again and again.
class Members {
 public:
  Members(const Algorithm& algorithm, const std::vector<int>& layout, size_t elements, const SparseOptions& options)
      : algorithm_(algorithm), options_(options), elements_(elements), job_(world(layout, elements)) {
    for (Rank rank = 0; rank < job_.size(); ++rank) {
      ranges_.push_back(residual_range(algorithm.name, job_.comm(rank).topology(), rank, elements));
      selectors_.emplace_back(ranges_.back().size());
    }
  }
  int count() const { return job_.size(); }

  Vectors step(const Vectors& gradients) {
    Vectors results = gradients;
    job_.run_or_throw([&](Comm& comm) {
      return sparse_allreduce(comm, comm.topology().world(), std::span(results[comm.rank()]), options_,
                              selectors_[comm.rank()], algorithm_.name);
    });
    return results;
  }
  void skip() {
    for (Selector& selector : selectors_) selector.feedback.restore_last();
  }
  bool residuals_finite() const {
    return std::all_of(selectors_.begin(), selectors_.end(), [](const Selector& selector) {
      const std::span<const float> residual = selector.feedback.residual();
      return std::all_of(residual.begin(), residual.end(), [](float x) { return std::isfinite(x); });
    });
  }
  // The sum of all residuals.
  std::vector<float> held() const {
    std::vector<float> sum(elements_);
    for (size_t i = 0; i < selectors_.size(); ++i) {
      const std::span<const float> residual = selectors_[i].feedback.residual();
      for (size_t e = 0; e < residual.size(); ++e) sum[ranges_[i].begin + e] += residual[e];
    }
    return sum;
  }

 private:
  static net::sim::Options world(const std::vector<int>& layout, uint64_t seed) {
    net::sim::Options options;
    options.ranks_per_host = layout;
    options.seed = seed;
    options.latency_jitter = 2;
    return options;
  }

  const Algorithm& algorithm_;
  const SparseOptions options_;
  const size_t elements_;
  SimJob job_;
  std::vector<pattern::Range> ranges_;
  std::vector<Selector> selectors_;
};

std::vector<float> plus(std::vector<float> a, const std::vector<float>& b) {
  for (size_t e = 0; e < a.size(); ++e) a[e] += b[e];
  return a;
}

template <class Body>
void for_every_case(const Algorithm& algorithm, Body body) {
  for (const auto& layout : trial::kLayouts) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (double density : {1e-9, 0.02, 0.3, 1.0}) {
        for (size_t elements : {0, 1, 5, 700}) {
          SCOPED_TRACE(fmt::format("{} members on {} hosts, {}, density {}, {} elements", trial::size_of_layout(layout),
                                   layout.size(), to_string(dtype), density, elements));
          const SparseOptions options(density, dtype, Reduction::kSum);
          Members members(algorithm, layout, elements, options);
          body(members, elements, options);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(EverySparse, NothingIsLostAndAllEndWithTheSame) {
  for_every_case(*GetParam(), [](Members& members, size_t elements, const SparseOptions&) {
    for (uint64_t step = 1; step <= 3; ++step) {
      const Vectors gradients = whole_numbers(members.count(), elements, step);
      const std::vector<float> before = plus(members.held(), reference::sum_in_order(gradients));
      const Vectors results = members.step(gradients);
      for (const auto& result : results) ASSERT_EQ(result, results[0]);
      ASSERT_EQ(plus(members.held(), results[0]), before) << "step " << step;
    }
  });
}

TEST_P(EverySparse, ASkippedStepLosesNothing) {
  for_every_case(*GetParam(), [](Members& members, size_t elements, const SparseOptions&) {
    for (uint64_t step = 1; step <= 2; ++step) {
      const Vectors gradients = whole_numbers(members.count(), elements, step);
      const std::vector<float> before = plus(members.held(), reference::sum_in_order(gradients));
      members.step(gradients);
      members.skip();
      ASSERT_EQ(members.held(), before) << "step " << step;
      members.step(whole_numbers(members.count(), elements, 7));  // so that something is taken out of it
    }
  });
}

// All of it goes, where all may go.
TEST_P(EverySparse, FullDensityIsTheSum) {
  for_every_case(*GetParam(), [](Members& members, size_t elements, const SparseOptions& options) {
    if (options.density < 1 || options.value_dtype != DType::kFloat32) return;
    const Vectors gradients = whole_numbers(members.count(), elements, 1);
    ASSERT_EQ(members.step(gradients)[0], reference::sum_in_order(gradients));
    ASSERT_EQ(members.held(), std::vector<float>(elements));
  });
}

// One member's NaN or Inf reaches every member and no residual.
TEST_P(EverySparse, NonFiniteReachesEveryMemberAndNoResidual) {
  for_every_case(*GetParam(), [](Members& members, size_t elements, const SparseOptions& options) {
    if (elements == 0 || options.density < 0.02) return;
    for (float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (int who : {0, members.count() - 1}) {
        Vectors gradients = whole_numbers(members.count(), elements, 1);
        gradients[static_cast<size_t>(who)][elements * 2 / 3] = poison;
        for (const auto& result : members.step(gradients)) {
          ASSERT_TRUE(std::any_of(result.begin(), result.end(), [](float x) { return !std::isfinite(x); }));
        }
        ASSERT_TRUE(members.residuals_finite());
        members.skip();
        ASSERT_TRUE(members.residuals_finite());
      }
    }
    const Vectors gradients = whole_numbers(members.count(), elements, 2);  // and then it goes on
    const std::vector<float> before = plus(members.held(), reference::sum_in_order(gradients));
    const Vectors results = members.step(gradients);
    ASSERT_EQ(plus(members.held(), results[0]), before);
  });
}

// So does what is finite everywhere and in sum is more than fp32 can hold.
TEST_P(EverySparse, AnOverflowReachesEveryMemberAndNoResidual) {
  for_every_case(*GetParam(), [](Members& members, size_t elements, const SparseOptions& options) {
    if (elements == 0 || members.count() == 1 || options.value_dtype == DType::kFloat16) return;
    Vectors gradients(static_cast<size_t>(members.count()), std::vector<float>(elements));
    for (auto& gradient : gradients) gradient[elements / 2] = 3e38f;
    for (const auto& result : members.step(gradients)) {
      ASSERT_TRUE(std::any_of(result.begin(), result.end(), [](float x) { return !std::isfinite(x); }));
    }
    members.skip();
    ASSERT_TRUE(members.residuals_finite());
  });
}

}  // namespace
}  // namespace virga::collective
