// A rank is killed, stopped or cut off in the middle of a step, in a real job of the real command on hosts that are
// really apart.
#include <chrono>
#include <signal.h>

#include "end_to_end/support.h"

namespace virga::end_to_end {
namespace {

using ::testing::ContainsRegex;

enum class Fault { kKill, kStop, kCut };

struct Case {
  Fault fault;
  int victim;
  int hosts = 4;
  std::string strategy = "hitopk";  // all ranks talk to all; on a ring (allreduce) only neighbours do
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const char* faults[] = {"Kill", "Stop", "Cut"};
  return faults[static_cast<int>(info.param.fault)] + std::string("Rank") + std::to_string(info.param.victim) + "By" +
         info.param.strategy;
}

class LostRank : public lab::RootTest, public ::testing::WithParamInterface<Case> {};

INSTANTIATE_TEST_SUITE_P(Every, LostRank,
                         ::testing::Values(Case{Fault::kKill, 2}, Case{Fault::kStop, 2}, Case{Fault::kCut, 2},
                                           Case{Fault::kKill, 0}, Case{Fault::kStop, 0},
                                           Case{Fault::kKill, 4, 6, "allreduce"}),
                         name_of);

// Hosts of one rank: all others must end within 15 s with an error that names it.
TEST_P(LostRank, EndsTheOthersWithItsName) {
  const auto& [fault, victim, hosts, strategy] = GetParam();
  lab::LabOptions options;
  options.hosts = hosts;
  options.rate = "200mbit";
  options.crew = captured(90);
  lab::Lab lab(options);
  lab.start(train({"--strategy", strategy, "--steps", "1000000"}));
  ASSERT_TRUE(lab.wait_for_output(0, "step 1 ", 60)) << lab.output(0);

  const auto strike = std::chrono::steady_clock::now();
  if (fault == Fault::kCut) {
    lab.cut(victim);
  } else {
    lab.signal(victim, fault == Fault::kKill ? SIGKILL : SIGSTOP);
  }
  const std::string name = "rank " + std::to_string(victim);
  for (int rank = 0; rank < hosts; ++rank) {
    if (rank == victim) continue;
    EXPECT_TRUE(lab.wait_for_output(rank, "virga: ", 40)) << "rank " << rank << ": " << lab.output(rank);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - strike).count();
  EXPECT_LT(seconds, 15) << "the survivors took too long";
  lab.signal(victim, SIGKILL);
  const lab::Report report = lab.wait();
  for (int rank = 0; rank < hosts; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(report.result.ranks[rank].status, 1) << report.result.ranks[rank].output;
    EXPECT_THAT(report.result.ranks[rank].output, ContainsRegex("virga: .*" + name)) << "rank " << rank;
  }
}

// Ranks of one host talk by shared memory, where nobody hears a neighbour die: the control stream must.
TEST(LostNeighbour, IsNamedByTheRanksOfItsHost) {
  lab::Crew crew(captured(90));
  lab::add_local_ranks(crew, 3, train({"--strategy", "allreduce", "--steps", "1000000"}));
  ASSERT_TRUE(crew.wait_for_output(0, "step 1 ", 60)) << crew.output(0);
  crew.signal(1, SIGKILL);
  const lab::CrewResult result = crew.wait();
  for (int rank : {0, 2}) {
    EXPECT_EQ(result.ranks[rank].status, 1);
    EXPECT_THAT(result.ranks[rank].output, ContainsRegex("virga: .*rank 1")) << "rank " << rank;
  }
}

}  // namespace
}  // namespace virga::end_to_end
