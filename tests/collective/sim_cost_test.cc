// What an algorithm says that it sends is what the transport counts, to the byte and to the message.
#include <gtest/gtest.h>

#include "virga/cluster/sim_job.h"
#include "virga/collective/barrier/dissemination.h"
#include "virga/collective/broadcast/broadcast.h"

namespace virga::collective {
namespace {

using cluster::SimJob;

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

Ledger charged(const BroadcastAlgorithm& algorithm, size_t bytes, const cluster::Topology& layout, int root,
               const Figures& figures) {
  Ledger ledger(layout, figures);
  algorithm.charge(bytes, layout.world_size(), root, ledger);
  return ledger;
}

TEST(Cost, BroadcastSendsWhatItsLedgerSays) {
  for (const BroadcastAlgorithm* algorithm : broadcast_algorithms()) {
    for (int members = 1; members <= 17; ++members) {
      for (size_t bytes : {0, 1, 16, 1000, 262144, 262145, 3'000'000}) {
        const Rank root = static_cast<Rank>(bytes % static_cast<size_t>(members));
        SimJob job(hosts(members));
        job.run_or_throw([&](Comm& comm) {
          return broadcast(comm, comm.topology().world(), root, net::Buffer{nullptr, bytes}, algorithm->name);
        });
        Ledger ledger = charged(*algorithm, bytes, job.comm(0).topology(), root, kOrdinaryFigures);
        ledger.seconds();
        for (Rank rank = 0; rank < members; ++rank) {
          EXPECT_EQ(counted(job.comm(rank)), ledger.sent(rank))
              << algorithm->name << ", " << members << " members, " << bytes << " bytes, rank " << rank;
        }
      }
    }
  }
}

// Where nothing but latency takes time, a broadcast of one slice takes its rounds.
TEST(Cost, BroadcastTakesTheRoundsThatItsLedgerSays) {
  for (const BroadcastAlgorithm* algorithm : broadcast_algorithms()) {
    for (int members = 1; members <= 17; ++members) {
      net::sim::Options options = hosts(members);
      options.between_hosts = {1e18, std::chrono::milliseconds(1)};
      SimJob job(options);
      job.run_or_throw([&](Comm& comm) {
        return broadcast(comm, comm.topology().world(), 0, net::Buffer{nullptr, 10'000}, algorithm->name);
      });
      Ledger ledger = charged(*algorithm, 10'000, job.comm(0).topology(), 0, kOrdinaryFigures);
      EXPECT_NEAR(to_seconds(job.loop().now()) * 1e3, ledger.rounds(), 1e-3) << algorithm->name << ", " << members;
    }
  }
}

// With the simulator's own figures the ledger's time is the simulator's, within what it leaves out: headers, and the
// last slice's being shorter.
TEST(Cost, BroadcastTakesTheTimeThatItsLedgerSays) {
  constexpr Figures kSimulated{{50e-6, 125e6}, {1e-6, 10e9}, 8e9};
  for (const BroadcastAlgorithm* algorithm : broadcast_algorithms()) {
    for (int members = 2; members <= 17; ++members) {
      for (size_t bytes : {16'000, 250'000, 4'000'000, 32'000'000}) {
        SimJob job(hosts(members));
        job.run_or_throw([&](Comm& comm) {
          return broadcast(comm, comm.topology().world(), 0, net::Buffer{nullptr, bytes}, algorithm->name);
        });
        const double seconds = charged(*algorithm, bytes, job.comm(0).topology(), 0, kSimulated).seconds();
        EXPECT_NEAR(seconds / to_seconds(job.loop().now()), 1, 0.15)
            << algorithm->name << ", " << members << " members, " << bytes << " bytes";
      }
    }
  }
}

TEST(Choice, ShortMessagesTakeFewRoundsLongOnesTheChain) {
  for (int members = 4; members <= 17; ++members) {
    SimJob job(hosts(members));
    const cluster::Topology& layout = job.comm(0).topology();
    EXPECT_EQ(choose_broadcast(8, layout, 0, kOrdinaryFigures).name, "binomial") << members;
    EXPECT_EQ(choose_broadcast(64'000'000, layout, 0, kOrdinaryFigures).name, "chain") << members;
  }
}

TEST(WrongUse, AnUnknownBroadcastListsTheKnown) {
  SimJob job(hosts(2));
  try {
    std::ignore = broadcast(job.comm(0), job.comm(0).topology().world(), 0, net::Buffer{nullptr, 8}, "carrier pigeon");
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("known are chain, binomial, scatter_allgather"), std::string::npos);
  }
}

TEST(Disagreement, DifferentBroadcastsAreAMismatchOnEveryRank) {
  SimJob job(hosts(4));
  // The root may have sent all it had before anybody could object; the next operation tells it.
  const auto outcomes = job.run([&](Comm& comm) -> Task<void> {
    const net::Buffer data{nullptr, 100'000};
    co_await broadcast(comm, comm.topology().world(), 0, data, comm.rank() == 2 ? "binomial" : "chain");
    co_await barrier(comm, comm.topology().world());
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->code(), ErrorCode::kMismatch) << outcome->what();
  }
}

}  // namespace
}  // namespace virga::collective
