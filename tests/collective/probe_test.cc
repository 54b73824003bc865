// The probe in the simulator, whose figures are known.
#include "virga/collective/probe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "virga/cluster/sim_job.h"

namespace virga::collective {
namespace {

using cluster::Figures;
using cluster::SimJob;

// What every rank has found, and how long that took.
std::vector<Figures> probed(const net::sim::Options& options, double& seconds) {
  SimJob job(options);
  std::vector<Figures> found(static_cast<size_t>(job.size()));
  job.run_or_throw([&](cluster::Comm& comm) -> Task<void> { found[comm.rank()] = co_await probe(comm); });
  seconds = to_seconds(job.loop().now());
  for (const Figures& figures : found) EXPECT_EQ(figures, found[0]);
  return found;
}

void expect_link(const cluster::LinkFigures& found, const net::sim::Link& link) {
  const double small = (sizeof(net::Header) + 64) / link.bytes_per_second;  // for which a message holds the link up
  EXPECT_NEAR(found.latency_seconds / (to_seconds(link.latency) + small), 1, 0.1);
  EXPECT_NEAR(found.bytes_per_second / link.bytes_per_second, 1, 0.05);
  EXPECT_LT(found.message_seconds, 300 / link.bytes_per_second);  // a header
}

TEST(Probe, FindsWhatTheSimulatedLinksCanDo) {
  for (const std::vector<int>& layout : {std::vector<int>{1, 1}, {1, 1, 1, 1, 1}, {2, 2}, {3, 1, 2}, {4}}) {
    for (const double rate : {1e6, 125e6, 3e9}) {
      net::sim::Options options;
      options.ranks_per_host = layout;
      options.between_hosts = {rate, std::chrono::microseconds(200)};
      options.inside_host = {8e9, std::chrono::microseconds(20)};
      options.memory_bytes_per_second = 5e9;
      SCOPED_TRACE(fmt::format("{} hosts, {} B/s", layout.size(), rate));
      double seconds = 0;
      const Figures found = probed(options, seconds)[0];
      if (layout.size() > 1) expect_link(found.between_hosts, options.between_hosts);
      const bool shared = *std::max_element(layout.begin(), layout.end()) > 1;
      if (shared) expect_link(found.inside_host, options.inside_host);
      EXPECT_NEAR(found.memory_bytes_per_second / 5e9, 1, 0.05);
      EXPECT_LT(seconds, 5) << rate;
    }
  }
}

TEST(Probe, FindsWhatALinkLetsThroughAtOnce) {
  for (const double burst : {0.0, 2048.0, 16384.0}) {
    net::sim::Options options;
    options.ranks_per_host = {1, 1, 2};
    options.between_hosts = {125e6, std::chrono::microseconds(200), burst};
    double seconds = 0;
    const Figures found = probed(options, seconds)[0];
    EXPECT_NEAR(found.between_hosts.burst_bytes, burst, 512) << burst;  // headers pass at once, too
    EXPECT_EQ(found.inside_host.burst_bytes, 0);
  }
}

TEST(Probe, LeavesWhatItCantMeasure) {
  net::sim::Options options;
  options.ranks_per_host = {1};
  double seconds = 0;
  const Figures found = probed(options, seconds)[0];
  EXPECT_EQ(found.between_hosts, cluster::kOrdinaryFigures.between_hosts);
  EXPECT_EQ(found.inside_host, cluster::kOrdinaryFigures.inside_host);
}

// A slow link holds the probe up for one transfer, not for all the bytes that a fast one gets.
TEST(Probe, EndsSoonOnASlowLink) {
  net::sim::Options options;
  options.ranks_per_host = {1, 1, 1};
  options.between_hosts = {1e5, std::chrono::milliseconds(100)};
  double seconds = 0;
  const Figures found = probed(options, seconds)[0];
  expect_link(found.between_hosts, options.between_hosts);
  EXPECT_LT(seconds, 25);
}

TEST(Probe, ALostRankEndsItOnAll) {
  net::sim::Options options;
  options.ranks_per_host = {1, 1, 1};
  SimJob job(options);
  job.loop().call_at(std::chrono::milliseconds(50), [&] { job.kill(1); });
  const SimJob::Outcomes outcomes = job.run([](cluster::Comm& comm) -> Task<void> { co_await probe(comm); });
  for (const Rank rank : {0, 2}) {
    ASSERT_TRUE(outcomes[rank]) << rank;
    EXPECT_EQ(outcomes[rank]->code(), ErrorCode::kPeerLost);
    EXPECT_EQ(outcomes[rank]->culprit(), 1);
  }
}

}  // namespace
}  // namespace virga::collective
