// Replicas of several ranks with all that models bring along: frozen and unused parameters, buffers, accumulation.
#include <signal.h>

#include "end_to_end/support.h"

namespace virga::end_to_end {
namespace {

TEST(Replica, KeepsItsPromises) {
  for (int ranks : {1, 3}) {
    const lab::CrewResult result = lab::run_local(ranks, {REPLICA_RANK}, captured(60));
    for (const lab::RankExit& rank : result.ranks) EXPECT_EQ(rank.status, 0) << rank.output;
  }
}

TEST(Dump, SigUsr1PrintsTheLastOperations) {
  lab::Crew crew(captured(90));
  lab::add_local_ranks(crew, 2, train({"--strategy", "hitopk", "--steps", "1000000"}));
  ASSERT_TRUE(crew.wait_for_output(0, "step 1 ", 60)) << crew.output(0);
  crew.signal(0, SIGUSR1);
  EXPECT_TRUE(crew.wait_for_output(0, "the last operations", 20));
  EXPECT_TRUE(crew.wait_for_output(0, "sparse_allreduce #", 20));
  crew.signal(0, SIGKILL);
  crew.wait();
}

}  // namespace
}  // namespace virga::end_to_end
