// A rank killed or stopped at every stage of a message. Real processes, real signals. The victim
// raises the signal itself, so the stage is exact. Whatever happens, the others must end in time
// with an error that names it, and own their buffers again.

#include "virga/runtime/task_group.h"

#include "contract/faults/crew.h"

namespace virga::net::faults {
namespace {

using namespace std::chrono_literals;

constexpr int kSize = 3;
constexpr Rank kVictim = 2;
constexpr Duration kDeadline = 2s;
constexpr Duration kGrace = 2s;
constexpr size_t kLarge = 48 << 20;

enum class Stage {
  kBeforeConnecting,  // it has only published its address
  kBeforeSending,
  kAnnounced,    // the large message is announced or under way, nobody has asked for it yet
  kMidTransfer,  // both sides are at it
  kAfter,        // all went well so far; the next message never comes, and nobody takes ours
};

struct Case {
  std::string name;
  bool same_host;
  int signal;
  Stage stage;
};
void PrintTo(const Case& the_case, std::ostream* out) { *out << the_case.name; }

Task<void> finish_by(Transport& transport, TransferPtr transfer, Duration limit) {
  CancelScope scope;
  const Deadline deadline = Deadline::after(transport.loop().clock(), limit);
  co_await finish(transport, std::move(transfer), deadline, scope);
}

TransferPtr send(Transport& transport, Rank to, uint64_t chunk, std::vector<std::byte>& data) {
  return transport.send(to, header_of(chunk, transport.rank()), {data.data(), data.size()});
}
TransferPtr receive(Transport& transport, Rank from, uint64_t chunk, std::vector<std::byte>& data) {
  return transport.receive(from, header_of(chunk, from), {data.data(), data.size()});
}

// Messages by their chunk.
enum Chunk : uint64_t { kGreeting = 1, kAnswer, kBig, kBehindBig, kBigIsHere, kNeverTaken, kNeverSent };

// What the victim does until its stage.
class Victim {
 public:
  Victim(Seat& seat, const Case& the_case) : seat_(seat), case_(the_case) {}

  std::string run() {
    if (case_.stage == Stage::kBeforeConnecting) raise(case_.signal);
    seat_.connect();
    if (case_.stage == Stage::kBeforeSending) raise(case_.signal);
    ask_and_wait(kGreeting, kAnswer);
    if (case_.stage == Stage::kAfter) raise(case_.signal);
    for (Rank rank = 0; rank < kVictim; ++rank) kept_.push_back(send(seat_.transport, rank, kBig, big_));
    if (case_.stage == Stage::kAnnounced) ask_and_wait(kBehindBig, kBigIsHere);
    if (case_.stage == Stage::kMidTransfer) seat_.loop.run_until([turns = 0]() mutable { return ++turns == 6; });
    raise(case_.signal);
    seat_.loop.run_until([] { return false; });  // resumed after a stop: goes on until it is killed
    return {};
  }

 private:
  void ask_and_wait(Chunk question, Chunk answer) {
    std::vector<TransferPtr> answers;
    for (Rank rank = 0; rank < kVictim; ++rank) {
      kept_.push_back(send(seat_.transport, rank, question, small_));
      answers.push_back(receive(seat_.transport, rank, answer, answer_));
    }
    seat_.loop.run_until([&] { return answers[0]->finished() && answers[1]->finished(); });
  }

  Seat& seat_;
  const Case& case_;
  std::vector<TransferPtr> kept_;
  std::vector<std::byte> small_ = std::vector<std::byte>(8), answer_ = small_;
  std::vector<std::byte> big_ = std::vector<std::byte>(kLarge, std::byte{0x11});
};

// A survivor's findings.
class Survivor {
 public:
  Survivor(Seat& seat, const Case& the_case) : seat_(seat), transport_(seat.transport), case_(the_case) {}

  std::string run() {
    seat_.connect();
    seat_.loop.run(reach_stage());
    seat_.loop.run(meet_failure());
    watch_buffers();
    seat_.loop.run(later_transfers());
    put_text(seat_.parent, "ended");
    take_text(seat_.parent);  // the other one may still wait for us
    return report_;
  }

 private:
  Task<void> reach_stage() {
    if (case_.stage < Stage::kAnnounced) co_return;
    co_await answer(kGreeting, kAnswer);
    if (case_.stage == Stage::kAnnounced) co_await answer(kBehindBig, kBigIsHere);
  }

  Task<void> answer(Chunk question, Chunk reply) {
    std::vector<std::byte> small(8);
    co_await finish_by(transport_, receive(transport_, kVictim, question, small), 20s);
    co_await finish_by(transport_, send(transport_, kVictim, reply, small), 20s);
  }

  // Receives what never comes whole and sends what is never taken, at the same time.
  Task<void> meet_failure() {
    in_.assign(kLarge, std::byte{0});
    out_.assign(kLarge, std::byte{0x22});
    std::vector<Task<void>> tasks;
    tasks.push_back(must_fail(receive(transport_, kVictim, case_.stage >= Stage::kAfter ? kNeverSent : kBig, in_)));
    tasks.push_back(may_fail(send(transport_, kVictim, kNeverTaken, out_)));
    co_await when_all(std::move(tasks));
  }

  Task<void> may_fail(TransferPtr transfer) {
    const Time begin = seat_.loop.now();
    try {
      co_await finish_by(transport_, transfer, kDeadline);
    } catch (const Error& error) {
      judge(error);
    }
    if (!transfer->finished()) report_ += "a buffer is not free\n";
    if (seat_.loop.now() - begin > kDeadline + kGrace) report_ += "too late\n";
  }

  Task<void> must_fail(TransferPtr transfer) {
    co_await may_fail(transfer);
    const bool may_have_come = case_.stage == Stage::kMidTransfer || case_.stage == Stage::kAnnounced;
    if (!transfer->error() && !may_have_come) report_ += "a message came from nobody\n";
  }

  void judge(const Error& error) {
    const std::string text = error.what();
    if (error.culprit() != kVictim || text.find("rank 2") == std::string::npos) {
      report_ += fmt::format("blames {}: {}\n", error.culprit(), text);
    }
  }

  // The buffers are ours: nobody writes to them any more, even if the victim wakes up.
  void watch_buffers() {
    std::fill(in_.begin(), in_.end(), std::byte{0x5a});
    put_text(seat_.parent, "failed");
    take_text(seat_.parent);  // by now the stopped one goes on
    const Time end = seat_.loop.now() + 300ms;
    seat_.loop.call_at(end, [] {});
    seat_.loop.run_until([&] { return seat_.loop.now() >= end; });
    for (const std::byte byte : in_) {
      if (byte == std::byte{0x5a}) continue;
      report_ += "somebody wrote to a buffer that was given back\n";
      return;
    }
  }

  // After a failure nothing blocks for long either.
  Task<void> later_transfers() {
    transport_.fail_peer(kVictim, Error(ErrorCode::kPeerLost, "rank 2 is lost", kVictim));
    std::vector<std::byte> data(100);
    for (const TransferPtr& transfer :
         {send(transport_, kVictim, kNeverTaken, data), receive(transport_, kVictim, kNeverSent, data)}) {
      if (!transfer->finished() || !transfer->error()) report_ += "a transfer with a lost rank does not fail at once\n";
      co_await may_fail(transfer);
    }
  }

  Seat& seat_;
  Transport& transport_;
  const Case& case_;
  std::string report_;
  std::vector<std::byte> in_, out_;
};

class Faults : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { alarm(60); }
  void TearDown() override { alarm(0); }
};

TEST_P(Faults, SurvivorsEndInTimeAndNameTheVictim) {
  const Case& the_case = GetParam();
  Crew crew(kSize, the_case.same_host, "lo", [&](Seat& seat) {
    return seat.transport.rank() == kVictim ? Victim(seat, the_case).run() : Survivor(seat, the_case).run();
  });
  crew.wait_for_signal(kVictim);
  for (Rank rank = 0; rank < kVictim; ++rank) EXPECT_EQ(crew.listen(rank), "failed");
  if (the_case.stage >= Stage::kAnnounced) crew.resume(kVictim);
  for (Rank rank = 0; rank < kVictim; ++rank) crew.tell(rank, "go on");
  for (Rank rank = 0; rank < kVictim; ++rank) EXPECT_EQ(crew.listen(rank), "ended");
  for (Rank rank = 0; rank < kVictim; ++rank) crew.tell(rank, "end");
  for (Rank rank = 0; rank < kVictim; ++rank) {
    EXPECT_EQ(crew.listen(rank), "report:") << "rank " << rank;
    EXPECT_EQ(crew.exit_status(rank), 0) << "rank " << rank;
  }
}

std::vector<Case> every_case() {
  const std::pair<Stage, const char*> stages[] = {{Stage::kBeforeConnecting, "BeforeConnecting"},
                                                  {Stage::kBeforeSending, "BeforeSending"},
                                                  {Stage::kAnnounced, "Announced"},
                                                  {Stage::kMidTransfer, "MidTransfer"},
                                                  {Stage::kAfter, "After"}};
  std::vector<Case> cases;
  for (const bool same_host : {true, false}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      for (const auto& [stage, name] : stages) {
        cases.push_back(
            {fmt::format("{}_{}_{}", same_host ? "inside" : "between", signal == SIGKILL ? "killed" : "stopped", name),
             same_host, signal, stage});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Every, Faults, ::testing::ValuesIn(every_case()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace virga::net::faults
