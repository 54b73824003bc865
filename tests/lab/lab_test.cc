#include "virga/lab/lab.h"

#include <cstdio>
#include <gmock/gmock.h>
#include <memory>
#include <signal.h>

#include "virga/base/error.h"

#include "lab/support.h"

namespace virga::lab {
namespace {

using ::testing::HasSubstr;

class LabTest : public RootTest {};

LabOptions options(int hosts, int ranks_per_host, const std::string& rate = "1gbit") {
  LabOptions result;
  result.hosts = hosts;
  result.ranks_per_host = ranks_per_host;
  result.rate = rate;
  result.crew = captured();
  return result;
}

std::string why_refused(const LabOptions& wrong) {
  try {
    Lab lab(wrong);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was wrong";
}

TEST(LabOptions, OutOfRangeIsRefusedBeforeAnythingIsMade) {
  for (int hosts : {-1, 0, 65}) {
    EXPECT_THAT(why_refused(options(hosts, 1)), HasSubstr("1 to 64 hosts"));
  }
  for (int ranks : {-1, 0, 65}) {
    EXPECT_THAT(why_refused(options(1, ranks)), HasSubstr("1 to 64 ranks"));
  }
  EXPECT_THAT(why_refused(options(1, 1, "0mbit")), HasSubstr("'0mbit' is no rate"));
}

TEST(Rate, FollowsTc) {
  EXPECT_EQ(parse_rate("200mbit"), 200'000'000U);
  EXPECT_EQ(parse_rate("1.5gbit"), 1'500'000'000U);
  EXPECT_EQ(parse_rate("64kbit"), 64'000U);
  EXPECT_EQ(parse_rate("1000bit"), 1'000U);
  EXPECT_EQ(parse_rate("100gbit"), 100'000'000'000U);
}

TEST(Rate, RefusesWhatIsNone) {
  for (const char* wrong : {"", "mbit", "200", "0mbit", "-1mbit", "200 mbit", "1.2.3mbit", ".mbit", ".5mbit", "nanmbit",
                            "infgbit", "1e3mbit", "0x10mbit", "101gbit", "999bit", "200mbits", "200MBit"}) {
    EXPECT_THROW(parse_rate(wrong), Error) << wrong;
  }
}

TEST_F(LabTest, HostsAreSeparateMachinesAndRanksOfOneHostShareOne) {
  Lab lab(options(2, 2));
  lab.start({LAB_RANK, "facts"});
  const Report report = lab.wait();
  ASSERT_EQ(report.result.status, 0) << report.result.ranks[0].output;
  std::vector<std::map<std::string, std::string>> facts;
  for (const RankExit& exit : report.result.ranks) facts.push_back(parse_facts(exit.output));
  for (const char* key : {"host", "net_namespace", "pid_namespace", "ipc_namespace", "shm"}) {
    EXPECT_EQ(facts[0][key], facts[1][key]) << key;
    EXPECT_EQ(facts[2][key], facts[3][key]) << key;
    EXPECT_NE(facts[0][key], facts[2][key]) << key;
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(facts[rank]["devices"], "e0,lo");
    EXPECT_EQ(facts[rank]["host"], rank < 2 ? "host0" : "host1");
    EXPECT_EQ(facts[rank]["RANK"], std::to_string(rank));
    EXPECT_EQ(facts[rank]["WORLD_SIZE"], "4");
    EXPECT_EQ(facts[rank]["LOCAL_RANK"], std::to_string(rank % 2));
    EXPECT_EQ(facts[rank]["LOCAL_WORLD_SIZE"], "2");
    EXPECT_EQ(facts[rank]["GROUP_RANK"], std::to_string(rank / 2));
    EXPECT_EQ(facts[rank]["MASTER_ADDR"], lab.address(0));
    EXPECT_EQ(facts[rank]["MASTER_PORT"], "29500");
  }
}

struct Gathered {
  double seconds = 0;
  unsigned long bytes = 0;
};

Gathered parse_gathered(const Report& report) {
  Gathered result;
  const std::string& output = report.result.ranks[0].output;
  EXPECT_EQ(std::sscanf(output.c_str(), "seconds %lf bytes %lu", &result.seconds, &result.bytes), 2) << output;
  return result;
}

// Bits that crossed the slowest link each second, by the kernel's counters. A token bucket lets its
// burst through at once, which is 1 % here; a busy machine can only make it slower.
void expect_rate(double bits, double seconds, double rate) {
  EXPECT_LT(bits / seconds, 1.05 * rate);
  EXPECT_GT(bits / seconds, 0.50 * rate);
}

TEST_F(LabTest, RateOfASenderHoldsAndCountersAgreeWithWhatWasSent) {
  constexpr unsigned long kBytes = 10'000'000;
  Lab lab(options(2, 1, "100mbit"));
  lab.start({LAB_RANK, "gather", std::to_string(kBytes)});
  const Report report = lab.wait();
  const Gathered gathered = parse_gathered(report);
  EXPECT_EQ(gathered.bytes, kBytes);
  EXPECT_EQ(report.rate_bits_per_second, 100'000'000U);
  const Traffic& sender = report.hosts[1].traffic;
  EXPECT_GE(sender.bytes_sent, kBytes);
  EXPECT_LE(sender.bytes_sent, kBytes * 106 / 100);  // headers, and what TCP sends twice
  EXPECT_EQ(report.hosts[0].traffic.bytes_received, sender.bytes_sent);
  EXPECT_EQ(report.hosts[0].traffic.bytes_sent, sender.bytes_received);
  expect_rate(8.0 * sender.bytes_sent, gathered.seconds, 100e6);
}

TEST_F(LabTest, ThreeSendersShareTheLinkOfTheReceiver) {
  constexpr unsigned long kBytes = 3'000'000;
  Lab lab(options(4, 1, "100mbit"));
  lab.start({LAB_RANK, "gather", std::to_string(kBytes)});
  const Report report = lab.wait();
  const Gathered gathered = parse_gathered(report);
  EXPECT_EQ(gathered.bytes, 3 * kBytes);
  expect_rate(8.0 * report.hosts[0].traffic.bytes_received, gathered.seconds, 100e6);
}

TEST_F(LabTest, TwoLabsAtOnceDoNotMeet) {
  auto first = std::make_unique<Lab>(options(2, 1));
  Lab second(options(3, 1));
  first->start({LAB_RANK, "gather", "1000"});
  second.start({LAB_RANK, "gather", "2000"});
  EXPECT_EQ(parse_gathered(first->wait()).bytes, 1000U);
  first.reset();
  EXPECT_EQ(parse_gathered(second.wait()).bytes, 4000U);
}

TEST_F(LabTest, StatusIsThatOfTheFirstFailingRank) {
  Lab lab(options(2, 2));
  lab.start({LAB_RANK, "exit", "7"});
  const Report report = lab.wait();
  EXPECT_EQ(report.result.status, 7);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(report.result.ranks[rank].status, rank % 2 == 1 ? 7 : 0);
    EXPECT_EQ(report.result.ranks[rank].signal, 0);
  }
}

TEST_F(LabTest, AKilledRankIsReportedAndTheOthersEndAfterTheGrace) {
  LabOptions short_grace = options(2, 1);
  short_grace.crew.grace_seconds = 0.1;
  Lab lab(short_grace);
  lab.start({LAB_RANK, "hold"});
  ASSERT_TRUE(lab.wait_for_output(0, "ready", 10));
  ASSERT_TRUE(lab.wait_for_output(1, "ready", 10));
  lab.signal(1, SIGKILL);
  const CrewResult result = lab.wait().result;
  EXPECT_EQ(result.status, 128 + SIGKILL);
  EXPECT_EQ(result.ranks[1].signal, SIGKILL);
  EXPECT_EQ(result.ranks[0].signal, SIGTERM);
}

TEST_F(LabTest, TimeoutEndsStoppedAndStubbornRanks) {
  LabOptions limited = options(2, 1);
  limited.crew.timeout_seconds = 0.5;
  Lab lab(limited);
  lab.start({LAB_RANK, "stubborn"});
  lab.signal(1, SIGSTOP);
  const CrewResult result = lab.wait().result;
  EXPECT_EQ(result.status, 124);
  EXPECT_EQ(result.ranks[0].signal, SIGKILL);
  EXPECT_NE(result.ranks[1].signal, 0);
  EXPECT_GE(result.seconds, 0.5);
}

TEST_F(LabTest, ACutHostHearsNothingUntilItIsHealed) {
  Lab lab(options(2, 1));
  lab.start({LAB_RANK, "echo"});
  ASSERT_TRUE(lab.wait_for_output(1, "answer 3\n", 10));
  lab.cut(1);
  const auto before = lab.traffic(1).bytes_received;
  EXPECT_FALSE(lab.wait_for_output(1, "answer 300\n", 0.3));
  EXPECT_EQ(lab.traffic(1).bytes_received, before);
  lab.heal(1);
  EXPECT_TRUE(lab.wait_for_output(1, "answer 100\n", 20));
}

TEST_F(LabTest, LeavesNothingBehindWhenItGoesWhileRanksRun) {
  const auto open_before = entries("/proc/self/fd");
  const std::string word = unique_word();
  std::string network;
  {
    Lab lab(options(2, 2));
    lab.start({LAB_RANK, "family", "0", word});
    for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(lab.wait_for_output(rank, "ready\n", 10));
    EXPECT_EQ(processes_with(word), 8);
    network = parse_facts(lab.output(3))["net_namespace"];
    EXPECT_EQ(processes_in(network), 5);  // two ranks, their children, the init
  }
  EXPECT_FALSE(has_children());
  EXPECT_EQ(processes_with(word), 0);
  EXPECT_EQ(processes_in(network), 0);
  EXPECT_EQ(entries("/proc/self/fd"), open_before);
}

TEST_F(LabTest, ACommandThatDoesNotExistIsAnErrorAndLeavesNothing) {
  const auto open_before = entries("/proc/self/fd");
  for (const char* wrong : {"no-such-program", "/no/such/program", "/etc/passwd"}) {
    Lab lab(options(2, 1));
    EXPECT_THROW(lab.start({wrong}), Error) << wrong;
  }
  EXPECT_FALSE(has_children());
  EXPECT_EQ(entries("/proc/self/fd"), open_before);
}

TEST_F(LabTest, DevicesOfTheMachineItselfStayAsTheyAre) {
  const auto before = entries("/sys/class/net");
  Lab lab(options(3, 1));
  EXPECT_EQ(entries("/sys/class/net"), before);
}

TEST_F(LabTest, SaysWhatToDoWithoutRoot) {
  ASSERT_EQ(::seteuid(65534), 0);
  const std::string message = why_refused(options(2, 1));
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_THAT(message, HasSubstr("needs root"));
  EXPECT_THAT(message, HasSubstr("sudo"));
}

}  // namespace
}  // namespace virga::lab
