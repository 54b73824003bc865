#include "virga/net/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

namespace virga::net {
namespace {

using ::testing::HasSubstr;

Header header_of(Rank source, uint64_t chunk) {
  Header header;
  header.source = source;
  header.chunk = chunk;
  return header;
}

TransferPtr receive_of(Rank peer, uint64_t chunk, size_t bytes = 0) {
  static std::byte memory[64];
  return std::make_shared<Transfer>(Transfer::Direction::kReceive, peer, header_of(peer, chunk), Buffer{memory, bytes});
}

// Writes down what happens to it.
class Noted final : public Arrival {
 public:
  Noted(const Header& header, size_t bytes, std::string name, std::vector<std::string>& log)
      : Arrival(header, bytes), name_(std::move(name)), log_(log) {}
  ~Noted() override { log_.push_back(name_ + " gone"); }
  void deliver(const TransferPtr& receive) override {
    log_.push_back(name_ + " delivered");
    receive->finish();
  }
  void keep() override { log_.push_back(name_ + " kept"); }

 private:
  std::string name_;
  std::vector<std::string>& log_;
};

class MailboxTest : public ::testing::Test {
 protected:
  MailboxTest() {
    mailbox_.set_failure_listener([this](const Error& error) { errors_.push_back(error); });
  }
  void arrive(const Header& header, size_t bytes = 0, const std::string& name = "m") {
    mailbox_.arrive(std::make_unique<Noted>(header, bytes, name, log_));
  }

  std::vector<std::string> log_;
  std::vector<Error> errors_;
  Mailbox mailbox_{4, {100, 3}};
};

TEST_F(MailboxTest, KeepsOnlyWhatNobodyExpects) {
  mailbox_.expect(receive_of(1, 5));
  arrive(header_of(1, 5), 0, "first");
  EXPECT_THAT(log_, ::testing::ElementsAre("first delivered", "first gone"));
  log_.clear();
  arrive(header_of(1, 5), 0, "second");
  EXPECT_THAT(log_, ::testing::ElementsAre("second kept"));
}

TEST_F(MailboxTest, MatchesEqualAddressesInOrder) {
  arrive(header_of(1, 5), 0, "a");
  arrive(header_of(1, 5), 0, "b");
  log_.clear();
  mailbox_.expect(receive_of(1, 5));
  mailbox_.expect(receive_of(1, 5));
  EXPECT_THAT(log_, ::testing::ElementsAre("a delivered", "a gone", "b delivered", "b gone"));
}

TEST_F(MailboxTest, TellsSourcesAndChunksApart) {
  arrive(header_of(1, 5));
  const TransferPtr other_source = receive_of(2, 5), other_chunk = receive_of(1, 6);
  mailbox_.expect(other_source);
  mailbox_.expect(other_chunk);
  EXPECT_FALSE(other_source->finished() || other_chunk->finished());
  EXPECT_TRUE(mailbox_.expects_anything());
}

TEST_F(MailboxTest, DropsAndReportsWhatCannotBe) {
  Header magic = header_of(1, 0), version = header_of(1, 0), kind = header_of(1, 0);
  magic.magic = 0;
  version.version = 77;
  kind.kind = static_cast<OpKind>(0);
  for (const Header& header : {magic, version, kind, header_of(4, 0), header_of(-1, 0)}) arrive(header);
  EXPECT_EQ(errors_.size(), 5u);
  for (const Error& error : errors_) EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(log_, std::vector<std::string>(5, "m gone"));
}

TEST_F(MailboxTest, BoundsWhatWaitsAndFreesRoomAgain) {
  arrive(header_of(1, 0), 60);
  arrive(header_of(1, 1), 60);  // too many bytes
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_EQ(errors_[0].code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(errors_[0].what(), HasSubstr("rank 1"));
  arrive(header_of(1, 2));
  arrive(header_of(1, 3));
  arrive(header_of(1, 4));  // too many messages
  EXPECT_EQ(errors_.size(), 2u);
  mailbox_.expect(receive_of(1, 0, 60));
  arrive(header_of(1, 5), 90);
  EXPECT_EQ(errors_.size(), 2u);
}

TEST_F(MailboxTest, ReportsDisagreementToBothSidesOfTheCall) {
  Header there = header_of(2, 0);
  there.elements = 9;
  const TransferPtr receive = receive_of(2, 0);
  mailbox_.expect(receive);
  arrive(there);
  ASSERT_TRUE(receive->error());
  EXPECT_EQ(receive->error()->code(), ErrorCode::kMismatch);
  EXPECT_THAT(receive->error()->what(), HasSubstr("elements 0 here, 9 there"));
  EXPECT_EQ(errors_.size(), 1u);
}

TEST_F(MailboxTest, GivesUpOnlyWhatStillWaits) {
  const Error reason(ErrorCode::kCancelled, "enough");
  const TransferPtr waiting = receive_of(1, 0), twin = receive_of(1, 0), done = receive_of(1, 1);
  arrive(header_of(1, 1));
  mailbox_.expect(done);
  mailbox_.expect(waiting);
  mailbox_.expect(twin);
  EXPECT_FALSE(mailbox_.give_up(done, reason));
  EXPECT_TRUE(mailbox_.give_up(waiting, reason));
  EXPECT_FALSE(mailbox_.give_up(waiting, reason));
  EXPECT_FALSE(twin->finished());
  mailbox_.give_up_peer(2, reason);
  EXPECT_FALSE(twin->finished());
  mailbox_.give_up_peer(1, reason);
  EXPECT_TRUE(twin->error());
  EXPECT_FALSE(done->error());
  EXPECT_FALSE(mailbox_.expects_anything());
}

TEST_F(MailboxTest, RechecksWhatWaits) {
  Header header = header_of(1, 0);
  header.operation = 7;
  arrive(header);
  bool strict = false;
  mailbox_.set_arrival_check([&](const Header& h) -> std::optional<Error> {
    if (!strict) return std::nullopt;
    return Error(ErrorCode::kMismatch, "no", h.source);
  });
  mailbox_.recheck_waiting(7);
  EXPECT_TRUE(errors_.empty());
  strict = true;
  mailbox_.recheck_waiting(8);
  EXPECT_TRUE(errors_.empty());
  mailbox_.recheck_waiting(7);
  EXPECT_EQ(errors_.size(), 1u);
}

}  // namespace
}  // namespace virga::net
