// What a rank makes of what rank 0 says or doesn't say, in virtual time and without a network.

#include "virga/cluster/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "virga/cluster/control.pb.h"

namespace virga::cluster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Rank 1 of 2.
class MemberTest : public testing::Test {
 protected:
  MemberTest() {
    options_.world_size = 2;
    options_.self.rank = 1;
    options_.rendezvous_host = "node0";
    options_.rendezvous_port = 29501;
    member_.emplace(options_, [this](const wire::ToCoordinator& message) { sent_.push_back(message); });
    meeting_ = member_->meet(now_);
  }

  void hear(const wire::FromCoordinator& message) { member_->receive(message, now_); }
  void hear_heartbeat() {
    wire::FromCoordinator message;
    message.mutable_heartbeat();
    hear(message);
  }
  void welcome(const std::vector<int>& ranks) {
    member_->greet(now_);
    wire::FromCoordinator message;
    message.mutable_welcome();
    for (int rank : ranks) message.mutable_welcome()->add_members()->set_rank(rank);
    hear(message);
  }
  void pass(Duration duration) {
    for (const Time end = now_ + duration; now_ < end;) member_->tick(now_ += 100ms);
  }
  template <class T>
  Error error_of(std::future<T>& future) {
    if (future.wait_for(0s) != std::future_status::ready) {
      ADD_FAILURE() << "it still waits";
      return Error(ErrorCode::kInvalidArgument, "");
    }
    try {
      future.get();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return Error(ErrorCode::kInvalidArgument, "");
  }

  ControlOptions options_;
  std::optional<Member> member_;
  std::vector<wire::ToCoordinator> sent_;
  std::future<Member::Members> meeting_;
  Time now_ = 100s;
};

TEST_F(MemberTest, GivesUpWhereNobodyAnswersSayingWhatItSaw) {
  member_->note_trouble("10.0.0.1:29501: Connection refused");
  pass(59900ms);
  EXPECT_TRUE(member_->is_seeking());
  pass(100ms);
  const Error error = error_of(meeting_);
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_STREQ(error.what(),
               "rendezvous: rank 1 did not meet rank 0 at node0:29501 within 60 s: 10.0.0.1:29501: "
               "Connection refused");
}

TEST_F(MemberTest, TellsRank0HowLongItStillWaits) {
  pass(20s);
  member_->greet(now_);
  ASSERT_TRUE(sent_.back().has_hello());
  EXPECT_DOUBLE_EQ(sent_.back().hello().patience_seconds(), 40);
}

TEST_F(MemberTest, GivesUpTwoSecondsLateWhereRank0GivesNoVerdict) {
  member_->greet(now_);
  for (int second = 0; second < 61; ++second) {
    hear_heartbeat();
    pass(1s);
  }
  EXPECT_EQ(meeting_.wait_for(0s), std::future_status::timeout);
  hear_heartbeat();
  pass(1s);
  EXPECT_THAT(error_of(meeting_).what(), HasSubstr("rank 0 gives no verdict"));
}

TEST_F(MemberTest, AStreamThatBreaksUnansweredIsTriedAgain) {
  std::future<void> answer = member_->greet(now_);
  member_->disconnected("reset");
  EXPECT_EQ(answer.wait_for(0s), std::future_status::ready);
  EXPECT_TRUE(member_->is_seeking());
  answer = member_->greet(now_);
  hear_heartbeat();
  EXPECT_EQ(answer.wait_for(0s), std::future_status::ready);
  EXPECT_FALSE(member_->is_seeking());
  member_->disconnected("reset");
  EXPECT_EQ(error_of(meeting_).code(), ErrorCode::kPeerLost);
}

TEST_F(MemberTest, BelievesNoImpossibleWelcome) {
  const std::vector<std::vector<int>> impossible{{}, {0}, {0, 1, 2}, {1, 0}, {0, 0}, {0, 7}, {-1, 0}};
  for (const auto& ranks : impossible) {
    member_.emplace(options_, [](const wire::ToCoordinator&) {});
    meeting_ = member_->meet(now_);
    welcome(ranks);
    error_of(meeting_);
    EXPECT_FALSE(member_->has_met());
  }
}

TEST_F(MemberTest, SilenceOfRank0EndsTheJob) {
  welcome({0, 1});
  std::optional<Abort> heard;
  member_->set_listener([&](const Abort& abort) { heard = abort; });
  pass(10s);
  EXPECT_FALSE(heard);
  pass(100ms);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->culprit, 0);
  EXPECT_EQ(heard->reason, "rank 0 at node0:29501 is lost: no sign of life for 10.1 s (stopped, hung or cut off)");
}

TEST_F(MemberTest, WhoeverWasStoppedItselfBlamesNobody) {
  welcome({0, 1});
  pass(1s);
  now_ += 60s;
  pass(5s);
  std::future<void> left = member_->leave(now_);
  EXPECT_TRUE(sent_.back().has_goodbye());
}

TEST_F(MemberTest, SendsAHeartbeatEverySecondAndWhenAsked) {
  welcome({0, 1});
  pass(100ms);
  sent_.clear();
  pass(5s);
  EXPECT_EQ(sent_.size(), 5u);
  pass(500ms);
  sent_.clear();
  wire::FromCoordinator message;
  message.mutable_heartbeat()->set_answer_now(true);
  hear(message);
  pass(100ms);
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(MemberTest, AnExchangeEndsWhenRank0Leaves) {
  welcome({0, 1});
  auto exchange = member_->exchange("k", "v", 60s, now_);
  wire::FromCoordinator goodbye;
  goodbye.mutable_goodbye();
  hear(goodbye);
  EXPECT_EQ(error_of(exchange).code(), ErrorCode::kUnavailable);
  exchange = member_->exchange("k", "v", 60s, now_);
  EXPECT_EQ(error_of(exchange).code(), ErrorCode::kUnavailable);
}

TEST_F(MemberTest, AnExchangeIgnoresImpossibleResultsAndEndsAnyway) {
  welcome({0, 1});
  auto exchange = member_->exchange("k", "v", 1s, now_);
  auto same_key = member_->exchange("k", "v", 1s, now_);
  EXPECT_EQ(error_of(same_key).code(), ErrorCode::kInvalidArgument);
  wire::FromCoordinator result;
  result.mutable_result()->set_key("other");
  hear(result);
  result.mutable_result()->set_key("k");
  hear(result);
  EXPECT_EQ(exchange.wait_for(0s), std::future_status::timeout);
  pass(6s);
  EXPECT_EQ(error_of(exchange).code(), ErrorCode::kDeadlineExceeded);
}

TEST_F(MemberTest, LeavingEndsAfterTenSecondsWhateverRank0Does) {
  welcome({0, 1});
  std::future<void> left = member_->leave(now_);
  for (int second = 0; second < 10; ++second) {
    EXPECT_EQ(left.wait_for(0s), std::future_status::timeout);
    hear_heartbeat();
    pass(1s);
  }
  EXPECT_EQ(left.wait_for(0s), std::future_status::ready);
}

TEST_F(MemberTest, ReportsOfARankWithoutRank0ReachItself) {
  welcome({0, 1});
  int heard = 0;
  member_->set_listener([&](const Abort& abort) {
    ++heard;
    EXPECT_EQ(abort.reporter, 1);
  });
  wire::FromCoordinator goodbye;
  goodbye.mutable_goodbye();
  hear(goodbye);
  member_->report({.reason = "first"});
  member_->report({.reason = "second"});
  EXPECT_EQ(heard, 1);
  auto exchange = member_->exchange("k", "v", 1s, now_);
  EXPECT_STREQ(error_of(exchange).what(), "first (noticed by rank 1)");
}

}  // namespace
}  // namespace virga::cluster
