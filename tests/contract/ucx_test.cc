// What only the real network can get wrong: wrong use of its own calls, and the price of idling.

#include <time.h>

#include "contract/world.h"

namespace virga::net::contract {
namespace {

using ucx::UcxTransport;

class Ucx : public ::testing::Test {
 protected:
  void SetUp() override { alarm(60); }
  void TearDown() override { alarm(0); }

  SteadyClock clock_;
  Loop loop_{clock_};
};

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kNonFinite;
}

TEST_F(Ucx, NeedsADeviceThatExists) {
  EXPECT_EQ(code_of([&] { UcxTransport(loop_, UcxTransport::Options(0, 1, "nosuchdevice0")); }),
            ErrorCode::kUnavailable);
  EXPECT_EQ(code_of([&] { UcxTransport(loop_, UcxTransport::Options(0, 1, "")); }), ErrorCode::kInvalidArgument);
}

TEST_F(Ucx, NeedsARankThatExists) {
  EXPECT_EQ(code_of([&] { UcxTransport(loop_, UcxTransport::Options(2, 2, "lo")); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { UcxTransport(loop_, UcxTransport::Options(-1, 2, "lo")); }), ErrorCode::kInvalidArgument);
}

TEST_F(Ucx, RefusesWrongUseBeforeAnythingIsSent) {
  UcxTransport a(loop_, UcxTransport::Options(0, 3, "lo")), b(loop_, UcxTransport::Options(1, 3, "lo"));
  const Header header = header_of(0, 0, 0);
  EXPECT_EQ(code_of([&] { a.send(1, header, {}); }), ErrorCode::kInvalidArgument);  // not connected
  EXPECT_EQ(code_of([&] { a.send(3, header, {}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { a.receive(-1, header, {}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { a.send(0, header, {nullptr, 8}); }),
            ErrorCode::kInvalidArgument);  // phantom
  EXPECT_EQ(code_of([&] { a.receive(0, header, {nullptr, 8}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { a.connect(2, b.address(), true); }),
            ErrorCode::kCorrupt);  // it is rank 1's
  a.connect(1, b.address(), true);
  EXPECT_EQ(code_of([&] { a.connect(1, b.address(), true); }), ErrorCode::kInvalidArgument);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Two ranks that have talked wait for each other for a second: the bar is 0.5 % of a core for each.
TEST(UcxIdle, CostsNothing) {
  for (const bool same_host : {true, false}) {
    UcxWorld world(same_host ? std::vector<int>{2} : std::vector<int>{1, 1}, {});
    std::vector<std::byte> in(8), never(8);
    const std::vector<std::byte> out(8);
    for (const auto& [from, to] : {std::pair<Rank, Rank>{0, 1}, {1, 0}}) {
      const TransferPtr send = world.at(from).send(to, header_of(1, 0, from), buffer_of(out));
      world.run(when_both(finish_soon(world.at(from), send),
                          finish_soon(world.at(to), world.at(to).receive(from, header_of(1, 0, from), buffer_of(in)))));
    }
    world.pass(50ms);
    const TransferPtr waits = world.at(0).receive(1, header_of(2, 0, 1), buffer_of(never));
    const double before = cpu_seconds();
    world.pass(1s);
    EXPECT_LT(cpu_seconds() - before, 0.01) << (same_host ? "inside" : "between");
    world.at(0).cancel(waits, Error(ErrorCode::kCancelled, "the end"));
  }
}

}  // namespace
}  // namespace virga::net::contract
