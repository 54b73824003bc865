// How ranks that go on hear of those that leave: a goodbye is no failure, a death is one, also for
// who is idle.

#include "virga/runtime/task_group.h"

#include "contract/faults/crew.h"
#include "contract/world.h"

namespace virga::net::faults {
namespace {

using namespace std::chrono_literals;

constexpr Rank kLeaver = 1;

constexpr Duration kSoon = 10s;

Task<void> exchange(Transport& transport) {
  const Rank peer = 1 - transport.rank();
  std::vector<std::byte> out(8), in(8);
  const TransferPtr receive = transport.receive(peer, header_of(0, peer), {in.data(), in.size()});
  const ConstBuffer words{out.data(), out.size()};
  co_await contract::finish_soon(transport, transport.send(peer, header_of(0, transport.rank()), words), kSoon);
  co_await contract::finish_soon(transport, receive, kSoon);
}

// The last messages of a rank count although it is gone when they are asked for.
std::string say_last_words(Seat& seat) {
  seat.connect();
  seat.loop.run(exchange(seat.transport));
  for (const size_t bytes : {0u, 100u, 8000u}) {
    const std::vector<std::byte> data(bytes, std::byte{7});
    seat.loop.run(contract::finish_soon(seat.transport,
                                        seat.transport.send(0, header_of(bytes + 1, 1), {data.data(), bytes}), kSoon));
  }
  return {};
}

std::string hear_last_words(Seat& seat) {
  std::string report;
  seat.transport.set_failure_listener([&](const Error& error) { report += fmt::format("heard {}\n", error.what()); });
  seat.connect();
  seat.loop.run(exchange(seat.transport));
  put_text(seat.parent, "running");
  std::vector<std::byte> never(8);
  const TransferPtr waits = seat.transport.receive(kLeaver, header_of(99, kLeaver), {never.data(), 8});
  seat.loop.run_until([&] { return waits->finished(); });  // by its goodbye
  if (!waits->error() || waits->error()->code() != ErrorCode::kPeerLost) report += "the goodbye ended no receive\n";
  take_text(seat.parent);  // it is gone for good
  for (const size_t bytes : {8000u, 0u, 100u}) {
    std::vector<std::byte> data(bytes);
    seat.loop.run(contract::finish_soon(
        seat.transport, seat.transport.receive(kLeaver, header_of(bytes + 1, 1), {data.data(), bytes}), kSoon));
    if (bytes > 0 && data.back() != std::byte{7}) report += "a last message is wrong\n";
  }
  const Time end = seat.loop.now() + 200ms;
  seat.loop.call_at(end, [] {});
  seat.loop.run_until([&] { return seat.loop.now() >= end; });
  if (!seat.transport.send(kLeaver, header_of(5, 0), {never.data(), 8})->error()) report += "a send to who left\n";
  return report;
}

class Leaving : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { alarm(60); }
  void TearDown() override { alarm(0); }
};
INSTANTIATE_TEST_SUITE_P(Every, Leaving, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "inside" : "between"; });

TEST_P(Leaving, IsNoFailureAndLosesNothing) {
  Crew crew(2, GetParam(), "lo",
            [](Seat& seat) { return seat.transport.rank() == kLeaver ? say_last_words(seat) : hear_last_words(seat); });
  EXPECT_EQ(crew.listen(0), "running");
  EXPECT_EQ(crew.listen(kLeaver), "report:");
  EXPECT_EQ(crew.exit_status(kLeaver), 0);
  crew.tell(0, "gone");
  EXPECT_EQ(crew.listen(0), "report:");
}

std::string connect_to_who_is_gone(Seat& seat) {
  take_text(seat.parent);
  try {
    seat.connect();
  } catch (const Error& error) {
    const bool named = error.code() == ErrorCode::kPeerLost && error.culprit() == kLeaver;
    return named ? std::string() : fmt::format("another error: {}\n", error.what());
  }
  return "no error\n";
}

// Between hosts connections come to be in the background, and their failures too.
TEST(LeavingBefore, AConnectionInsideTheHostIsALoss) {
  alarm(60);
  Crew crew(2, true, "lo",
            [](Seat& seat) { return seat.transport.rank() == kLeaver ? "" : connect_to_who_is_gone(seat); });
  EXPECT_EQ(crew.exit_status(kLeaver), 0);
  crew.tell(0, "gone");
  EXPECT_EQ(crew.listen(0), "report:");
  alarm(0);
}

// Inside the host nobody can tell: the control plane's heartbeat must.
TEST(Dying, IsHeardByWhoIsIdle) {
  alarm(60);
  Crew crew(2, false, "lo", [](Seat& seat) -> std::string {
    int heard = 0;
    seat.transport.set_failure_listener([&](const Error& error) { heard += error.culprit() == kLeaver; });
    seat.connect();
    seat.loop.run(exchange(seat.transport));
    if (seat.transport.rank() == kLeaver) raise(SIGKILL);
    const Time begin = seat.loop.now();
    seat.loop.run_until([&] { return heard > 0; });
    return seat.loop.now() - begin < 5s ? "" : "heard too late\n";
  });
  EXPECT_EQ(crew.listen(0), "report:");
  alarm(0);
}

}  // namespace
}  // namespace virga::net::faults
