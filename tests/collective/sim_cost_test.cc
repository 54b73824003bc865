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

TEST(Cost, BroadcastSendsWhatItsFormulaSays) {
  for (const BroadcastAlgorithm* algorithm : broadcast_algorithms()) {
    for (int members = 1; members <= 17; ++members) {
      for (size_t bytes : {0, 1, 16, 1000, 262144, 262145, 3'000'000}) {
        const Rank root = static_cast<Rank>(bytes % static_cast<size_t>(members));
        SimJob job(hosts(members));
        job.run_or_throw([&](Comm& comm) {
          return broadcast(comm, comm.topology().world(), root, net::Buffer{nullptr, bytes}, algorithm->name);
        });
        for (Rank rank = 0; rank < members; ++rank) {
          const int distance = (rank - root + members) % members;
          EXPECT_EQ(counted(job.comm(rank)), algorithm->sent(bytes, members, distance))
              << algorithm->name << ", " << members << " members, " << bytes << " bytes, distance " << distance;
        }
      }
    }
  }
}

// Everybody but the root receives each byte once, unless shards come twice: in scatter and in allgather.
TEST(Cost, NoBroadcastSendsLessThanMustArrive) {
  for (const BroadcastAlgorithm* algorithm : broadcast_algorithms()) {
    for (int members = 2; members <= 17; ++members) {
      uint64_t sum = 0;
      for (int distance = 0; distance < members; ++distance) sum += algorithm->sent(170'000, members, distance).bytes;
      EXPECT_GE(sum, 170'000u * static_cast<uint64_t>(members - 1)) << algorithm->name << ", " << members;
    }
  }
}

TEST(Choice, ShortMessagesTakeFewRoundsLongOnesTheChain) {
  for (int members = 4; members <= 17; ++members) {
    EXPECT_EQ(choose_broadcast(8, members, kOrdinaryLink).name, "binomial") << members;
    EXPECT_EQ(choose_broadcast(64'000'000, members, kOrdinaryLink).name, "chain") << members;
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
