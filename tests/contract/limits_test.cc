// What every transport owes when something is wrong but nobody is dead: deadlines, cancelling,
// disagreement, bounds.

#include "contract/world.h"

namespace virga::net::contract {
namespace {

class Limits : public Contract {};
INSTANTIATE_TEST_SUITE_P(Every, Limits, kEveryKind, kind_name);

std::optional<Error> error_in(World& world, Task<void> task) { return world.loop().run(error_of(std::move(task))); }

Task<void> receive_bytes(Transport& transport, Rank from, Header header, size_t bytes, Duration limit) {
  std::vector<std::byte> data(bytes);
  co_await finish_soon(transport, transport.receive(from, header, buffer_of(data)), limit);
}

Task<void> send_bytes(Transport& transport, Rank to, Header header, size_t bytes) {
  const std::vector<std::byte> data(bytes);
  co_await finish_soon(transport, transport.send(to, header, buffer_of(data)));
}

TEST_P(Limits, ADeadlineEndsAReceiveAndNamesTheRank) {
  const auto world = GetParam().make();
  const Time begin = world->loop().now();
  const auto error = error_in(*world, receive_bytes(world->at(0), 2, header_of(3, 1, 2), 64, 50ms));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error->culprit(), 2);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("rank 2"));
  EXPECT_GE(world->loop().now() - begin, 50ms);
  EXPECT_LT(world->loop().now() - begin, 2050ms);
}

// A receive that was given up is out of the books: the next one with its address gets the message.
TEST_P(Limits, AReceiveThatWasGivenUpTakesNothing) {
  const auto world = GetParam().make();
  const Header header = header_of(3, 1, 2);
  EXPECT_TRUE(error_in(*world, receive_bytes(world->at(0), 2, header, 64, 20ms)));
  world->run(when_both(send_bytes(world->at(2), 0, header, 64), receive_bytes(world->at(0), 2, header, 64, 5s)));
}

// Nobody ever asks for it. Where a send is only done when it is fetched, its deadline ends it and
// may cost the connection.
TEST_P(Limits, ASendEndsByItsDeadlineAtTheLatest) {
  const auto world = GetParam().make();
  const std::vector<std::byte> data(8 << 20);
  const TransferPtr transfer = world->at(0).send(1, header_of(3, 1, 0), buffer_of(data));
  const auto error = error_in(*world, finish_soon(world->at(0), transfer, 300ms));
  EXPECT_TRUE(transfer->finished());
  if (!error) return;
  EXPECT_EQ(error->code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error->what(), ::testing::HasSubstr("sending to rank 1"));
}

TEST_P(Limits, ACancelledScopeEndsEverythingInItWithItsReason) {
  const auto world = GetParam().make();
  CancelScope scope;
  const auto waiter = [&](uint64_t chunk) -> Task<void> {
    std::vector<std::byte> data(8);
    Transport& transport = world->at(0);
    const Deadline deadline = Deadline::after(world->loop().clock(), 10s);
    co_await finish(transport, transport.receive(1, header_of(1, chunk, 1), buffer_of(data)), deadline, scope);
  };
  const auto expect_cancelled = [&](uint64_t chunk) -> Task<void> {
    const auto error = co_await error_of(waiter(chunk));
    EXPECT_TRUE(error && error->code() == ErrorCode::kAborted);
  };
  world->loop().call_at(world->loop().now() + 20ms,
                        [&] { scope.cancel(Error(ErrorCode::kAborted, "rank 2 failed first", 2)); });
  world->run(when_both(expect_cancelled(1), expect_cancelled(2)));
  world->run(expect_cancelled(3));  // the scope is spent: whatever comes later ends at once
  EXPECT_LT(world->loop().now(), Time(8s));
}

struct Field {
  const char* name;
  std::function<void(Header&)> change;
};
const Field kFields[] = {{"operation", [](Header& h) { h.kind = OpKind::kBroadcast; }},
                         {"epoch", [](Header& h) { h.epoch = 9; }},
                         {"dtype", [](Header& h) { h.dtype = DType::kFloat32; }},
                         {"elements", [](Header& h) { h.elements = 9; }},
                         {"root", [](Header& h) { h.root = 1; }},
                         {"algorithm", [](Header& h) { h.algorithm = 9; }},
                         {"reduction", [](Header& h) { h.reduction = net::Reduction::kMax; }},
                         {"wire dtype", [](Header& h) { h.wire = DType::kFloat16; }},
                         {"options", [](Header& h) { h.options = 9; }}};

TEST_P(Limits, DisagreementIsNamedOnTheReceiver) {
  const auto world = GetParam().make();
  uint64_t chunk = 0;
  for (const bool early : {false, true}) {
    for (const size_t bytes : {8u, 600'000u}) {
      for (const Field& field : kFields) {
        std::vector<Error> heard;
        world->at(1).set_failure_listener([&](const Error& error) { heard.push_back(error); });
        const Header here = header_of(7, ++chunk, 2);
        Header there = here;
        field.change(there);
        const std::vector<std::byte> data(bytes);
        const TransferPtr send = world->at(2).send(1, there, buffer_of(data));
        if (early) world->pass(20ms);
        const auto error = error_in(*world, receive_bytes(world->at(1), 2, here, bytes, 5s));
        ASSERT_TRUE(error) << field.name;
        EXPECT_EQ(error->code(), ErrorCode::kMismatch) << error->what();
        EXPECT_EQ(error->culprit(), 2);
        EXPECT_THAT(error->what(), ::testing::AllOf(::testing::HasSubstr(field.name), ::testing::HasSubstr("rank 2")));
        world->run(finish_soon(world->at(2), send));
        world->pass(1ms);
        EXPECT_EQ(heard.size(), 1u) << field.name;
      }
    }
  }
}

TEST_P(Limits, AMessageOfAnotherSizeIsRefused) {
  const auto world = GetParam().make();
  uint64_t chunk = 0;
  for (const auto& [sent, expected] : {std::pair<size_t, size_t>{8, 7}, {8, 9}, {0, 1}, {700'000, 8}, {8, 700'000}}) {
    const Header header = header_of(7, ++chunk, 0);
    const std::vector<std::byte> data(sent);
    const TransferPtr send = world->at(0).send(2, header, buffer_of(data));
    const auto error = error_in(*world, receive_bytes(world->at(2), 0, header, expected, 5s));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::kMismatch) << error->what();
    EXPECT_THAT(error->what(), ::testing::HasSubstr(fmt::format("{} here, {} there", expected, sent)));
    world->run(finish_soon(world->at(0), send));
  }
}

TEST_P(Limits, TheArrivalCheckRefusesMessages) {
  const auto world = GetParam().make();
  std::vector<Error> heard;
  world->at(1).set_failure_listener([&](const Error& error) { heard.push_back(error); });
  world->at(1).set_arrival_check([](const Header& header) -> std::optional<Error> {
    if (header.operation != 66) return std::nullopt;
    return Error(ErrorCode::kMismatch, "operation 66 never was", header.source);
  });
  world->run(send_bytes(world->at(0), 1, header_of(66, 0, 0), 8));
  world->run(when_both(send_bytes(world->at(0), 1, header_of(5, 0, 0), 8),
                       receive_bytes(world->at(1), 0, header_of(5, 0, 0), 8, 5s)));
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0].culprit(), 0);
}

TEST_P(Limits, MessagesThatWaitAreBounded) {
  Mailbox::Limits limits;
  limits.waiting_messages = 10;
  limits.waiting_bytes = 1 << 20;
  const auto world = GetParam().make(limits);
  std::vector<Error> heard;
  world->at(0).set_failure_listener([&](const Error& error) { heard.push_back(error); });
  for (uint64_t chunk = 0; chunk < 12; ++chunk) world->run(send_bytes(world->at(1), 0, header_of(1, chunk, 1), 8));
  world->pass(50ms);
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_EQ(heard[0].code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(heard[0].culprit(), 1);
  for (uint64_t chunk = 0; chunk < 10; ++chunk) {
    world->run(receive_bytes(world->at(0), 1, header_of(1, chunk, 1), 8, 5s));
  }
  const std::vector<std::byte> data((1 << 20) + 1);
  const TransferPtr send = world->at(1).send(0, header_of(2, 0, 1), buffer_of(data));
  world->pass(50ms);
  EXPECT_EQ(heard.size(), 3u);
  world->run(finish_soon(world->at(1), send));
}

TEST_P(Limits, AFailedPeerFailsWhatWaitsAndWhatComesLater) {
  const auto world = GetParam().make();
  Transport& transport = world->at(0);
  std::vector<std::byte> data(8);
  const TransferPtr waiting = transport.receive(2, header_of(1, 0, 2), buffer_of(data));
  const TransferPtr other = transport.receive(1, header_of(1, 0, 1), buffer_of(data));
  transport.fail_peer(2, Error(ErrorCode::kPeerLost, "rank 2 missed its heartbeats", 2));
  transport.fail_peer(2, Error(ErrorCode::kAborted, "said twice", 2));
  const TransferPtr later_receive = transport.receive(2, header_of(2, 0, 2), buffer_of(data));
  const TransferPtr later_send = transport.send(2, header_of(3, 0, 0), buffer_of(std::as_const(data)));
  for (const TransferPtr& transfer : {waiting, later_receive, later_send}) {
    ASSERT_TRUE(transfer->finished());
    ASSERT_TRUE(transfer->error());
    EXPECT_EQ(transfer->error()->code(), ErrorCode::kPeerLost);
    EXPECT_EQ(transfer->error()->culprit(), 2);
  }
  world->run(when_both(send_bytes(world->at(1), 0, header_of(1, 0, 1), 8), finish_soon(transport, other)));
}

}  // namespace
}  // namespace virga::net::contract
