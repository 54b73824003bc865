// What an algorithm says that it costs is what the transport counts and what the simulator takes: bytes and messages to
// the last one, rounds exactly, time nearly.
#include <gtest/gtest.h>

#include "collective/trial.h"

namespace virga::collective {
namespace {

using cluster::SimJob;
using trial::Trial;

Sent counted(Comm& comm) {
  Sent sum;
  for (Rank peer = 0; peer < comm.world_size(); ++peer) {
    const net::Traffic traffic = comm.transport().traffic(peer);
    sum.bytes += traffic.bytes_sent;
    sum.messages += traffic.messages_sent;
  }
  return sum;
}

net::sim::Options hosts(int count) {
  net::sim::Options options;
  options.ranks_per_host.assign(static_cast<size_t>(count), 1);
  return options;
}

// Sizes only: phantom vectors.
void run(SimJob& job, const Trial& trial) {
  job.run_or_throw([&](Comm& comm) -> Task<void> {
    const int me = comm.rank();
    Selector none(0);
    const Vector in(nullptr, trial.in_elements(me), trial.dtype), out(nullptr, trial.out_elements(me), trial.dtype);
    co_await trial.call(comm, in, out, &none);
  });
}

Ledger charged(const Trial& trial, const cluster::Topology& layout, const Figures& figures) {
  Ledger ledger(layout, figures);
  trial.algorithm->charge(trial.shape(layout), ledger);
  return ledger;
}

class Cost : public ::testing::TestWithParam<const Algorithm*> {};
INSTANTIATE_TEST_SUITE_P(Sim, Cost, ::testing::ValuesIn(algorithms()), trial::test_name);

void expect_counted(const Trial& trial, const net::sim::Options& options) {
  SimJob job(options);
  const cluster::Topology& layout = job.comm(0).topology();
  if (!trial::fits(trial, layout)) return;
  run(job, trial);
  const Ledger ledger = charged(trial, layout, cluster::kOrdinaryFigures);
  std::vector<uint64_t> host_bytes(layout.host_count());
  for (Rank rank = 0; rank < trial.members; ++rank) {
    EXPECT_EQ(counted(job.comm(rank)), ledger.sent(rank)) << trial.text() << ", rank " << rank;
    for (Rank peer = 0; peer < trial.members; ++peer) {
      if (layout.host_of(peer) == layout.host_of(rank)) continue;
      host_bytes[layout.host_of(rank)] += job.comm(rank).transport().traffic(peer).bytes_sent;
    }
  }
  for (int host = 0; host < layout.host_count(); ++host) {
    EXPECT_EQ(host_bytes[host], ledger.host_bytes(host)) << trial.text() << ", host " << host;
  }
}

TEST_P(Cost, BytesAndMessagesAreTheLedgers) {
  const auto try_all = [&](const net::sim::Options& options) {
    const int members = trial::size_of_layout(options.ranks_per_host);
    for (size_t elements : {0, 1, 16, 1000, 65'536, 65'537, 750'000}) {
      for (bool uneven : {false, true}) {
        Trial trial{GetParam(), elements, members};
        trial.root = static_cast<int>(elements % static_cast<size_t>(members));
        trial.uneven = uneven;
        trial.slice_bytes = size_t{256} << 10;
        if (!uneven || trial.has_parts()) expect_counted(trial, options);
      }
    }
  };
  for (int members = 1; members <= 17; ++members) try_all(hosts(members));
  for (const auto& layout : trial::kLayouts) {
    net::sim::Options options;
    options.ranks_per_host = layout;
    try_all(options);
  }
}

// Where nothing but latency takes time, what fits into one slice takes its rounds.
TEST_P(Cost, RoundsAreTheLedgers) {
  const auto expect_rounds = [&](net::sim::Options options) {
    options.between_hosts = options.inside_host = {1e18, std::chrono::milliseconds(1)};
    options.memory_bytes_per_second = 1e18;
    SimJob job(options);
    const Trial trial{GetParam(), 10'000, job.size()};
    if (!trial::fits(trial, job.comm(0).topology())) return;
    run(job, trial);
    const Ledger ledger = charged(trial, job.comm(0).topology(), cluster::kOrdinaryFigures);
    EXPECT_NEAR(to_seconds(job.loop().now()) * 1e3, ledger.rounds(), 1e-3) << trial.text();
  };
  for (int members = 1; members <= 17; ++members) expect_rounds(hosts(members));
  for (const auto& layout : trial::kLayouts) {
    net::sim::Options options;
    options.ranks_per_host = layout;
    expect_rounds(options);
  }
}

// With the simulator's own figures the ledger's time is the simulator's, within what it leaves out: headers, and how
// slices that share links get in each other's way; more so where the ranks of a host share one.
TEST_P(Cost, TimeIsTheLedgers) {
  constexpr Figures kSimulated{{50e-6, 125e6}, {1e-6, 10e9}, 8e9};
  const auto expect_time = [&](const net::sim::Options& options, double tolerance) {
    for (size_t elements : {4'000, 62'500, 1'000'000, 8'000'000}) {
      SimJob job(options);
      Trial trial{GetParam(), elements, job.size()};
      trial.slice_bytes = size_t{256} << 10;
      if (!trial::fits(trial, job.comm(0).topology())) return;
      run(job, trial);
      const double seconds = charged(trial, job.comm(0).topology(), kSimulated).seconds();
      EXPECT_NEAR(seconds / to_seconds(job.loop().now()), 1, tolerance) << trial.text();
    }
  };
  for (int members : {2, 3, 4, 5, 6, 7, 8, 11, 15, 16, 17}) expect_time(hosts(members), 0.15);
  for (const std::vector<int>& layout : {std::vector<int>{2, 2}, {4, 4}, {2, 2, 2, 2}, {1, 3}, {3, 1, 3}, {3, 2, 4}}) {
    net::sim::Options options;
    options.ranks_per_host = layout;
    expect_time(options, 0.25);
  }
}

// A link that saves up while it is idle: the first round is shorter by a burst, others by what their latency lets it
// save. The ledger lets each course of a slice have what they share.
TEST_P(Cost, TimeIsTheLedgersWithBursts) {
  constexpr Figures kSimulated{{50e-6, 125e6, 0, 0, 8192}, {1e-6, 10e9}, 8e9};
  for (int members : {2, 3, 4, 6, 8, 16}) {
    net::sim::Options options = hosts(members);
    options.between_hosts.burst_bytes = kSimulated.between_hosts.burst_bytes;
    for (size_t elements : {4'000, 16'000, 62'500, 1'000'000}) {
      SimJob job(options);
      const Trial trial{GetParam(), elements, job.size()};
      run(job, trial);
      const double seconds = charged(trial, job.comm(0).topology(), kSimulated).seconds();
      EXPECT_NEAR(seconds / to_seconds(job.loop().now()), 1, 0.2) << trial.text();
    }
  }
}

Plan chosen(OpKind kind, size_t bytes, int members, const Figures& figures = cluster::kOrdinaryFigures) {
  Shape shape;
  shape.kind = kind;
  shape.elements = bytes / 4;
  shape.root = 0;
  shape.layout = std::make_shared<const cluster::Topology>(SimJob(hosts(members)).comm(0).topology());
  return choose(shape, figures);
}

TEST(Choice, ShortBroadcastsTakeFewRoundsLongOnesTheChain) {
  for (int members = 4; members <= 17; ++members) {
    EXPECT_EQ(chosen(OpKind::kBroadcast, 8, members).algorithm->name, "binomial") << members;
    EXPECT_EQ(chosen(OpKind::kBroadcast, 64'000'000, members).algorithm->name, "chain") << members;
  }
}

// The root's link is held up by every message, whatever its size.
TEST(Choice, ShortPartsOfManyTakeTheTreeLongOnesGoDirectly) {
  Figures figures = cluster::kOrdinaryFigures;
  figures.between_hosts.message_seconds = 20e-6;
  for (OpKind kind : {OpKind::kGather, OpKind::kScatter}) {
    for (int members : {32, 64, 100}) {
      const size_t parts = static_cast<size_t>(members);
      EXPECT_EQ(chosen(kind, 8 * parts, members, figures).algorithm->name, "binomial") << members;
      EXPECT_EQ(chosen(kind, 4'000'000 * parts, members, figures).algorithm->name, "direct") << members;
    }
    EXPECT_EQ(chosen(kind, 8 * 4, 4, figures).algorithm->name, "direct");
  }
}

// Where a link between hosts is as fast as memory, one relay for eight members is too slow for long parts.
TEST(Choice, ShortPartsForAllGoFromHostToHost) {
  Figures fast = cluster::kOrdinaryFigures;
  fast.between_hosts = {20e-6, 10e9};
  const auto chosen_name = [](const std::vector<int>& ranks_per_host, size_t part, const Figures& figures) {
    net::sim::Options options;
    options.ranks_per_host = ranks_per_host;
    const cluster::Topology layout = SimJob(options).comm(0).topology();
    const size_t parts = static_cast<size_t>(layout.world_size() * layout.world_size());
    const Trial trial{&alltoall_pairwise, part * parts, layout.world_size()};
    return choose(trial.shape(layout), figures).algorithm->name;
  };
  EXPECT_EQ(chosen_name({4, 4, 4, 4}, 2, cluster::kOrdinaryFigures), "hierarchical");
  EXPECT_EQ(chosen_name({8, 8}, 2, fast), "hierarchical");
  EXPECT_EQ(chosen_name({8, 8}, 1'000'000, fast), "pairwise");
}

// The choice is the fastest of what it chooses from, by the same figures.
TEST(Choice, NothingThatFitsIsPredictedFaster) {
  for (int members : {2, 3, 8, 17}) {
    for (OpKind kind : {OpKind::kBroadcast, OpKind::kAllreduce, OpKind::kAllgather, OpKind::kReduceScatter}) {
      for (size_t bytes : {8, 16'000, 4'000'000}) {
        const Plan best = chosen(kind, bytes, members);
        for (const Algorithm* algorithm : algorithms()) {
          if (algorithm->kind != kind) continue;
          Trial trial{algorithm, bytes / 4, members};
          const Shape shape = trial.shape(SimJob(hosts(members)).comm(0).topology());
          if (!trial::fits(trial, *shape.layout)) continue;
          for (size_t slice_bytes : {61'440, 245'760, 983'040, 3'932'160}) {
            const Choice other{algorithm->name, slice_bytes};
            EXPECT_LE(best.seconds, choose(shape, cluster::kOrdinaryFigures, other).seconds) << trial.text();
          }
        }
      }
    }
  }
}

TEST(WrongUse, AnUnknownAlgorithmListsTheKnown) {
  SimJob job(hosts(2));
  try {
    std::ignore = broadcast(job.comm(0), job.comm(0).topology().world(), 0, net::Buffer{nullptr, 8}, "carrier pigeon");
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("known are chain, binomial, scatter_allgather"), std::string::npos)
        << error.what();
  }
}

TEST(Disagreement, DifferentAlgorithmsAreNamedOnEveryRank) {
  SimJob job(hosts(4));
  // The root may have sent all it had before anybody could object; the next operation tells it.
  const auto outcomes = job.run([&](Comm& comm) -> Task<void> {
    const net::Buffer data{nullptr, 100'000};
    const Choice choice = comm.rank() == 2 ? "binomial" : "chain";
    co_await broadcast(comm, comm.topology().world(), 0, data, choice);
    co_await barrier(comm, comm.topology().world());
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->code(), ErrorCode::kMismatch) << outcome->what();
    EXPECT_NE(std::string(outcome->what()).find("binomial"), std::string::npos) << outcome->what();
  }
}

}  // namespace
}  // namespace virga::collective
