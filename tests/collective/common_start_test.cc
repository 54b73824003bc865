#include "virga/collective/common_start.h"

#include <gtest/gtest.h>
#include <set>

#include "virga/cluster/sim_job.h"

namespace virga::collective {
namespace {

using cluster::Comm;
using cluster::SimJob;
using namespace std::chrono_literals;

// However late each rank comes, and however far away it is, all begin at one moment, which none of them has missed.
TEST(CommonStart, IsTheSameMomentForAllRanks) {
  for (const std::vector<int>& layout : {std::vector<int>{1}, {3}, {1, 1}, {2, 1, 2}, {1, 1, 1, 1, 1, 1, 1}}) {
    net::sim::Options options;
    options.ranks_per_host = layout;
    options.between_hosts.latency = 20ms;
    SimJob job(options);
    std::vector<std::set<Time>> starts(3);
    job.run_or_throw([&](Comm& comm) -> Task<void> {
      CommonStart start;
      co_await start.synchronize(comm);
      for (std::set<Time>& moments : starts) {
        co_await sleep_until(comm.loop().now() + comm.rank() * 3ms);
        const Time begin = co_await start.wait(comm);
        EXPECT_GE(comm.loop().now(), begin);
        EXPECT_LE(comm.loop().now(), begin + 1us);
        moments.insert(begin);
      }
    });
    for (const std::set<Time>& moments : starts) {
      EXPECT_LE(*moments.rbegin() - *moments.begin(), 1us) << layout.size();
    }
  }
}

}  // namespace
}  // namespace virga::collective
