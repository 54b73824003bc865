// Rank 0's decisions in virtual time, without a network. control_test.cc has the same on real
// streams.

#include "virga/cluster/coordinator.h"

#include <cmath>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "virga/cluster/control.pb.h"
#include "virga/cluster/wire.h"

namespace virga::cluster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Three ranks whose streams are 0 (local), 11 and 12, and whoever else comes.
class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    options_.world_size = 3;
    options_.job = "job";
    options_.self.rank = 0;
    Coordinator::Outlet outlet;
    outlet.send = [this](uint64_t link, const wire::FromCoordinator& message) { sent_[link].push_back(message); };
    outlet.close = [this](uint64_t link) { closed_.insert(link); };
    coordinator_.emplace(options_, outlet);
  }

  wire::ToCoordinator hello(int rank) {
    wire::ToCoordinator message;
    wire::Hello& hello = *message.mutable_hello();
    hello.set_protocol(wire::kProtocol);
    hello.set_job("job");
    hello.set_world_size(3);
    hello.set_epoch(options_.epoch);
    hello.set_patience_seconds(60);
    hello.mutable_member()->set_rank(rank);
    hello.mutable_member()->set_host_name("node" + std::to_string(rank));
    return message;
  }
  void come(uint64_t link, const wire::ToCoordinator& message) {
    coordinator_->opened(link, now_);
    coordinator_->receive(link, message, now_);
  }
  void meet() {
    come(0, hello(0));
    come(11, hello(1));
    come(12, hello(2));
    for (uint64_t link : {0, 11, 12}) EXPECT_TRUE(last(link).has_welcome());
    sent_.clear();
  }

  void say(uint64_t link, const wire::ToCoordinator& message) { coordinator_->receive(link, message, now_); }
  void beat(uint64_t link) {
    wire::ToCoordinator message;
    message.mutable_heartbeat();
    say(link, message);
  }
  void bye(uint64_t link) {
    wire::ToCoordinator message;
    message.mutable_goodbye();
    say(link, message);
  }
  void report(uint64_t link, ErrorCode code, int culprit, const std::string& reason = "reason") {
    wire::ToCoordinator message;
    wire::put({.code = code, .operation = "op", .culprit = culprit, .reason = reason}, *message.mutable_report());
    say(link, message);
  }
  void contribute(uint64_t link, const std::string& key, const std::string& value, double patience = 60) {
    wire::ToCoordinator message;
    message.mutable_contribution()->set_key(key);
    message.mutable_contribution()->set_value(value);
    message.mutable_contribution()->set_patience_seconds(patience);
    say(link, message);
  }

  // Lets time pass in ticks of 100 ms, with heartbeats from the given links.
  void pass(Duration duration, const std::vector<uint64_t>& alive = {11, 12}) {
    for (const Time end = now_ + duration; now_ < end;) {
      now_ += 100ms;
      for (uint64_t link : alive) beat(link);
      coordinator_->tick(now_);
    }
  }

  const wire::FromCoordinator& last(uint64_t link) {
    static const wire::FromCoordinator kNothing;
    return sent_[link].empty() ? kNothing : sent_[link].back();
  }
  // The abort that a link was told, if any. It is an error to be told two.
  std::optional<Abort> abort_at(uint64_t link) {
    std::optional<Abort> abort;
    for (const auto& message : sent_[link]) {
      if (!message.has_abort()) continue;
      EXPECT_FALSE(abort.has_value());
      abort = wire::get(message.abort(), 3);
    }
    return abort;
  }
  // The one that all the given links were told.
  Abort common_abort(const std::vector<uint64_t>& links = {0, 11, 12}) {
    for (uint64_t link : links) {
      if (!abort_at(link)) {
        ADD_FAILURE() << "link " << link << " knows nothing of an abort";
        return {};
      }
    }
    return *abort_at(links.front());
  }

  ControlOptions options_;
  std::optional<Coordinator> coordinator_;
  Time now_ = 100s;
  std::map<uint64_t, std::deque<wire::FromCoordinator>> sent_;
  std::set<uint64_t> closed_;
};

TEST_F(CoordinatorTest, TellsEveryFiveSecondsWhoIsMissing) {
  come(0, hello(0));
  come(12, hello(2));
  pass(4900ms, {12});
  EXPECT_FALSE(last(0).has_progress());
  pass(100ms, {12});
  EXPECT_EQ(last(0).progress().text(), "still waiting for ranks {1} of 3 after 5 s");
  EXPECT_EQ(sent_[12].size(), sent_[0].size());
  pass(5s, {12});
  EXPECT_THAT(sent_[12], testing::Contains(testing::ResultOf([](const auto& m) { return m.progress().text(); },
                                                             "still waiting for ranks {1} of 3 after 10 s")));
}

TEST_F(CoordinatorTest, TheMostImpatientRankSetsTheDeadline) {
  wire::ToCoordinator impatient = hello(1);
  impatient.mutable_hello()->set_patience_seconds(3);
  come(11, impatient);
  come(0, hello(0));
  pass(2900ms, {11});
  EXPECT_FALSE(abort_at(11));
  pass(100ms, {11});
  EXPECT_EQ(common_abort({0, 11}).code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(abort_at(0)->reason.substr(0, 38), "rank 2 of 3 did not come within 3 s: s");
}

TEST_F(CoordinatorTest, ARankThatIsLostDuringTheMeetingEndsIt) {
  come(0, hello(0));
  come(11, hello(1));
  coordinator_->closed(11, now_);
  EXPECT_EQ(common_abort({0}).culprit, 1);
  EXPECT_THAT(abort_at(0)->reason, HasSubstr("before all ranks had come"));
  EXPECT_FALSE(closed_.count(0));
}

TEST_F(CoordinatorTest, ARankThatLeavesDuringTheMeetingEndsIt) {
  come(0, hello(0));
  come(11, hello(1));
  bye(11);
  EXPECT_EQ(common_abort({0, 11}).culprit, 1);
  EXPECT_TRUE(closed_.count(11));
}

TEST_F(CoordinatorTest, RefusesStrangersAlone) {
  come(0, hello(0));
  wire::ToCoordinator other_version = hello(1), other_job = hello(1);
  other_version.mutable_hello()->set_protocol(99);
  other_job.mutable_hello()->set_job("other\njob");
  come(21, other_version);
  come(22, other_job);
  EXPECT_THAT(last(21).refusal().text(), HasSubstr("version 1 of the control protocol and this rank version 99"));
  EXPECT_THAT(last(22).refusal().text(), HasSubstr("another job ('job', this one is 'other?job')"));
  meet();
  come(23, hello(1));
  EXPECT_THAT(last(23).refusal().text(), HasSubstr("has met already"));
  for (uint64_t link : {21, 22, 23}) EXPECT_TRUE(closed_.count(link));
  EXPECT_FALSE(abort_at(0));
}

TEST_F(CoordinatorTest, DropsWhoeverSaysNothing) {
  meet();
  coordinator_->opened(31, now_);
  beat(31);
  pass(10s);
  EXPECT_FALSE(closed_.count(31));
  pass(200ms);
  EXPECT_TRUE(closed_.count(31));
  EXPECT_FALSE(abort_at(0));
}

TEST_F(CoordinatorTest, ChecksWhatARankSaysOfItself) {
  const std::vector<std::pair<std::function<void(wire::Hello&)>, std::string>> cases{
      {[](auto& h) { h.mutable_member()->set_rank(3); }, "no rank 3 in a job of 3"},
      {[](auto& h) { h.mutable_member()->set_rank(-1); }, "no rank -1"},
      {[](auto& h) { h.mutable_member()->set_host_name(std::string(257, 'x')); }, "host name of rank 1 has 257"},
      {[](auto& h) { h.mutable_member()->set_host_identity(std::string(257, 'x')); }, "host identity"},
      {[](auto& h) { h.mutable_member()->set_transport_address(std::string(65537, 'x')); }, "transport address"},
      {[](auto& h) { h.add_fingerprint()->set_value(std::string(4097, 'x')); }, "fingerprint"},
      {[](auto& h) { h.add_fingerprint()->set_name(std::string(257, 'x')); }, "fingerprint"},
      {[](auto& h) {
         for (int i = 0; i < 257; ++i) h.add_fingerprint();
       },
       "fingerprint"}};
  for (const auto& [change, text] : cases) {
    sent_.clear();
    coordinator_.emplace(
        options_, Coordinator::Outlet{[this](uint64_t link, const auto& message) { sent_[link].push_back(message); },
                                      [this](uint64_t link) { closed_.insert(link); }});
    come(0, hello(0));
    wire::ToCoordinator message = hello(1);
    change(*message.mutable_hello());
    come(11, message);
    EXPECT_THAT(common_abort({0, 11}).reason, HasSubstr(text));
  }
}

TEST_F(CoordinatorTest, ImpossiblePatienceIsBounded) {
  wire::ToCoordinator strange = hello(1);
  strange.mutable_hello()->set_patience_seconds(HUGE_VAL);
  come(11, strange);
  pass(30s, {11});
  EXPECT_FALSE(abort_at(11));
  strange = hello(2);
  strange.mutable_hello()->set_patience_seconds(std::nan(""));
  come(12, strange);
  pass(100ms);
  EXPECT_EQ(common_abort({11, 12}).code, ErrorCode::kDeadlineExceeded);
}

TEST_F(CoordinatorTest, SilenceForTenSecondsIsALoss) {
  meet();
  pass(10s, {12});
  EXPECT_FALSE(abort_at(0));
  pass(100ms, {12});
  const Abort abort = common_abort();
  EXPECT_EQ(abort.code, ErrorCode::kPeerLost);
  EXPECT_EQ(abort.culprit, 1);
  EXPECT_EQ(abort.reason, "rank 1 (host node1) is lost: no sign of life for 10.1 s (stopped, hung or cut off)");
  EXPECT_TRUE(closed_.count(11));
}

TEST_F(CoordinatorTest, WhoeverWasStoppedItselfBlamesNobody) {
  meet();
  pass(1s);
  now_ += 60s;
  pass(5s);
  EXPECT_FALSE(abort_at(0));
}

TEST_F(CoordinatorTest, SendsAHeartbeatEverySecond) {
  meet();
  pass(10s);
  EXPECT_EQ(sent_[11].size(), 10u);
  EXPECT_TRUE(last(11).has_heartbeat());
}

TEST_F(CoordinatorTest, ABrokenStreamIsALossAndAGoodbyeIsNot) {
  meet();
  bye(11);
  EXPECT_TRUE(last(11).has_goodbye());
  coordinator_->closed(11, now_);
  EXPECT_FALSE(abort_at(0));
  EXPECT_FALSE(coordinator_->deserted());
  coordinator_->closed(12, now_);
  EXPECT_EQ(common_abort({0}).culprit, 2);
  EXPECT_TRUE(coordinator_->deserted());
}

TEST_F(CoordinatorTest, OnlyTheFirstFailureIsTold) {
  meet();
  report(11, ErrorCode::kMismatch, 2, "first\n");
  report(12, ErrorCode::kPeerLost, 1, "second");
  coordinator_->closed(11, now_);
  const Abort abort = common_abort();
  EXPECT_EQ(abort.reason, "first?");
  EXPECT_EQ(abort.reporter, 1);
  EXPECT_EQ(abort.epoch, options_.epoch);
}

TEST_F(CoordinatorTest, ReportsWithImpossibleContentAreMadePossible) {
  meet();
  wire::ToCoordinator message;
  message.mutable_report()->set_code(1000);
  message.mutable_report()->set_culprit(1000);
  message.mutable_report()->set_reporter(2);
  message.mutable_report()->set_reason(std::string(1 << 20, 'x'));
  say(11, message);
  const Abort abort = common_abort();
  EXPECT_EQ(abort.code, ErrorCode::kAborted);
  EXPECT_EQ(abort.culprit, -1);
  EXPECT_EQ(abort.reporter, 1);
  EXPECT_LT(abort.reason.size(), 5000u);
}

// --- Deadlines: whom to blame ---

TEST_F(CoordinatorTest, ADeadlineAsksForSignsOfLifeAndIsBelievedAfterThem) {
  meet();
  report(11, ErrorCode::kDeadlineExceeded, 2);
  EXPECT_TRUE(last(12).heartbeat().answer_now());
  pass(100ms);
  EXPECT_FALSE(abort_at(0));
  pass(100ms);
  EXPECT_EQ(common_abort().culprit, 2);
  EXPECT_EQ(common_abort().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(CoordinatorTest, ABetterFoundedReportOvertakesADeadline) {
  meet();
  report(11, ErrorCode::kDeadlineExceeded, 2);
  report(0, ErrorCode::kPeerLost, 1);
  EXPECT_EQ(common_abort().culprit, 1);
  pass(4s);
  EXPECT_EQ(common_abort().culprit, 1);
}

TEST_F(CoordinatorTest, WhoeverStaysSilentIsTheCulprit) {
  meet();
  pass(1s, {11});
  report(11, ErrorCode::kDeadlineExceeded, 0, "too late");
  pass(2900ms, {11});
  EXPECT_FALSE(abort_at(0));
  pass(100ms, {11});
  const Abort abort = common_abort();
  EXPECT_EQ(abort.code, ErrorCode::kPeerLost);
  EXPECT_EQ(abort.culprit, 2);
  EXPECT_EQ(abort.reason, "rank 2 has been silent for 4.0 s (stopped, hung or cut off); too late");
  EXPECT_TRUE(closed_.count(12));
}

TEST_F(CoordinatorTest, TheBlameEndsWithWhoeverReportsNobody) {
  meet();
  report(11, ErrorCode::kDeadlineExceeded, 2);
  report(12, ErrorCode::kDeadlineExceeded, 0);
  pass(200ms);
  EXPECT_EQ(common_abort().culprit, 0);
  EXPECT_EQ(common_abort().reporter, 2);
}

TEST_F(CoordinatorTest, BlameInACircleEndsToo) {
  meet();
  report(0, ErrorCode::kDeadlineExceeded, 1);
  report(11, ErrorCode::kDeadlineExceeded, 2);
  report(12, ErrorCode::kDeadlineExceeded, 0);
  pass(200ms);
  EXPECT_EQ(common_abort().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(CoordinatorTest, WhoeverReportsADeadlineMayEndWithoutBeingBlamed) {
  meet();
  report(11, ErrorCode::kDeadlineExceeded, 2);
  coordinator_->closed(11, now_);
  pass(200ms, {12});
  EXPECT_EQ(common_abort({0, 12}).culprit, 2);
}

// --- Exchange ---

TEST_F(CoordinatorTest, ExchangesByKey) {
  meet();
  contribute(11, "a", "1a");
  contribute(11, "b", "1b");
  contribute(12, "b", "2b");
  contribute(0, "b", "0b");
  for (uint64_t link : {0, 11, 12}) {
    ASSERT_TRUE(last(link).has_result());
    EXPECT_EQ(last(link).result().key(), "b");
    EXPECT_THAT(last(link).result().values(), testing::ElementsAre("0b", "1b", "2b"));
  }
}

TEST_F(CoordinatorTest, RefusesWhatExchangesMustNotBe) {
  const std::vector<std::function<void()>> cases{[&] { contribute(11, std::string(257, 'k'), ""); },
                                                 [&] {
                                                   contribute(11, "k", "");
                                                   contribute(11, "k", "");
                                                 },
                                                 [&] {
                                                   contribute(11, "k", std::string(Control::kMaxExchangeBytes, 'v'));
                                                   contribute(12, "k", "v");
                                                 },
                                                 [&] {
                                                   for (int i = 0; i < 65; ++i) contribute(11, std::to_string(i), "");
                                                 }};
  for (const auto& act : cases) {
    sent_.clear();
    coordinator_.emplace(
        options_, Coordinator::Outlet{[this](uint64_t link, const auto& message) { sent_[link].push_back(message); },
                                      [this](uint64_t link) { closed_.insert(link); }});
    meet();
    act();
    EXPECT_GE(common_abort().culprit, 1);
  }
}

TEST_F(CoordinatorTest, AnExchangeEndsAtTheFirstDeadlineNamingWhoIsMissing) {
  meet();
  contribute(0, "plan", "", 60);
  contribute(12, "plan", "", 2);
  pass(2s);
  EXPECT_FALSE(abort_at(0));
  pass(200ms);
  EXPECT_EQ(common_abort().reason, "the deadline has passed and rank 1 gave no value");
  EXPECT_EQ(common_abort().operation, "exchange 'plan'");
}

TEST_F(CoordinatorTest, AnExchangeThatMissesASilentRankBlamesItsSilence) {
  meet();
  contribute(0, "plan", "", 1);
  pass(5s, {11});
  EXPECT_EQ(common_abort().culprit, 2);
  EXPECT_EQ(common_abort().code, ErrorCode::kPeerLost);
}

// --- The end ---

TEST_F(CoordinatorTest, WaitsForLatecomersOnlyAfterAMismatch) {
  come(0, hello(0));
  wire::ToCoordinator wrong = hello(1);
  wrong.mutable_hello()->set_world_size(2);
  come(11, wrong);
  EXPECT_EQ(common_abort({0, 11}).reason, "rank 1 has a world size of 2, rank 0 of 3");
  bye(11);
  EXPECT_FALSE(coordinator_->deserted());
  come(12, hello(2));
  EXPECT_EQ(abort_at(12)->reason, abort_at(0)->reason);
  bye(12);
  EXPECT_TRUE(coordinator_->deserted());
}

TEST_F(CoordinatorTest, SaysGoodbyeToWhoeverIsLeft) {
  meet();
  bye(0);
  coordinator_->end_meeting();
  coordinator_->say_goodbye();
  EXPECT_TRUE(last(11).has_goodbye());
  EXPECT_TRUE(closed_.count(11));
  coordinator_->closed(11, now_);
  EXPECT_FALSE(abort_at(12));
}

TEST_F(CoordinatorTest, TheMeetingEndsWhenRank0Leaves) {
  come(11, hello(1));
  coordinator_->end_meeting();
  EXPECT_EQ(common_abort({11}).culprit, 0);
}

}  // namespace
}  // namespace virga::cluster
