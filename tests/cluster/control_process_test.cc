// Ranks as processes that are killed, stopped or end without a word: control_member.cc.

#include <chrono>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace virga::cluster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(20);

class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int input[2], output[2];
    EXPECT_EQ(pipe2(input, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), CONTROL_MEMBER);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, CONTROL_MEMBER, &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    output_ = output[0];
  }
  ~Process() {
    end_input();
    close(output_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;

  void signal(int number) { EXPECT_EQ(kill(pid_, number), 0); }
  void end_input() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }

  // The next line of its output; "(end)" when there is no more, "(silence)" when it takes too long.
  std::string line() {
    const auto deadline = Clock::now() + kPatience;
    while (true) {
      if (const size_t end = text_.find('\n'); end != std::string::npos) {
        const std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        return line;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      pollfd entry{output_, POLLIN, 0};
      if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) <= 0) return "(silence)";
      char buffer[4096];
      const ssize_t count = read(output_, buffer, sizeof buffer);
      if (count <= 0) return "(end)";
      text_.append(buffer, static_cast<size_t>(count));
    }
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string text_;
};

// Three ranks that have met; `silent` ends without a goodbye when its input ends.
class ControlProcess : public testing::Test {
 protected:
  void start(int silent = -1) {
    std::string port = "0";
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<std::string> arguments{std::to_string(rank), "3", port};
      if (rank == silent) arguments.push_back("exit");
      ranks_.push_back(std::make_unique<Process>(arguments));
      const std::string line = ranks_[rank]->line();
      ASSERT_THAT(line, StartsWith("port "));
      port = line.substr(5);
    }
    for (auto& rank : ranks_) ASSERT_EQ(rank->line(), "met");
  }

  Process& rank(int number) { return *ranks_[number]; }

  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST_F(ControlProcess, AKilledRankIsNamedByAllOthersAtOnce) {
  start();
  const auto begin = Clock::now();
  rank(2).signal(SIGKILL);
  for (int survivor : {0, 1}) {
    const std::string line = rank(survivor).line();
    EXPECT_THAT(line, StartsWith("abort 2 peer lost"));
    EXPECT_THAT(line, HasSubstr("rank 2 (host here) is lost"));
    EXPECT_EQ(rank(survivor).line(), "end");
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(800)) << "it waited for the heartbeat";
}

TEST_F(ControlProcess, AKilledRank0IsNamedByAllOthersAtOnce) {
  start();
  const auto begin = Clock::now();
  rank(0).signal(SIGKILL);
  for (int survivor : {1, 2}) {
    EXPECT_THAT(rank(survivor).line(), StartsWith("abort 0 peer lost"));
    EXPECT_EQ(rank(survivor).line(), "end");
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(800)) << "it waited for the heartbeat";
}

TEST_F(ControlProcess, AStoppedRankIsNamedByAllAndByItselfWhenItWakesUp) {
  start();
  rank(1).signal(SIGSTOP);
  for (int survivor : {0, 2}) {
    const std::string line = rank(survivor).line();
    EXPECT_THAT(line, StartsWith("abort 1 peer lost"));
    EXPECT_THAT(line, HasSubstr("no sign of life"));
  }
  EXPECT_EQ(rank(2).line(), "end");
  rank(1).signal(SIGCONT);
  EXPECT_THAT(rank(1).line(), StartsWith("abort "));
  EXPECT_EQ(rank(1).line(), "end");
  EXPECT_EQ(rank(0).line(), "end");
}

TEST_F(ControlProcess, AStoppedRank0IsNamedByAllOthers) {
  start();
  rank(0).signal(SIGSTOP);
  for (int survivor : {1, 2}) {
    const std::string line = rank(survivor).line();
    EXPECT_THAT(line, StartsWith("abort 0 peer lost"));
    EXPECT_THAT(line, HasSubstr("no sign of life"));
    EXPECT_EQ(rank(survivor).line(), "end");
  }
  rank(0).signal(SIGCONT);
  EXPECT_THAT(rank(0).line(), StartsWith("abort "));
  EXPECT_EQ(rank(0).line(), "end");
}

TEST_F(ControlProcess, TwoKilledRanksLeaveOneVerdict) {
  start();
  rank(1).signal(SIGKILL);
  rank(2).signal(SIGKILL);
  EXPECT_THAT(rank(0).line(), testing::AnyOf(StartsWith("abort 1 "), StartsWith("abort 2 ")));
  EXPECT_EQ(rank(0).line(), "end");
}

TEST_F(ControlProcess, EndingWithoutAGoodbyeIsAFailure) {
  start(1);
  rank(1).end_input();
  EXPECT_THAT(rank(0).line(), StartsWith("abort 1 peer lost"));
  EXPECT_THAT(rank(2).line(), StartsWith("abort 1 peer lost"));
}

TEST_F(ControlProcess, LeavingInOrderIsNoFailure) {
  start();
  rank(1).end_input();
  EXPECT_EQ(rank(1).line(), "end");
  rank(2).end_input();
  EXPECT_EQ(rank(2).line(), "end");
  rank(0).end_input();
  EXPECT_EQ(rank(0).line(), "end");
}

TEST_F(ControlProcess, Rank0StaysForTheOthers) {
  start();
  rank(0).end_input();
  rank(1).signal(SIGKILL);  // rank 0 has left, or is about to: it still tells rank 2
  EXPECT_THAT(rank(2).line(), StartsWith("abort 1 peer lost"));
  EXPECT_EQ(rank(2).line(), "end");
}

}  // namespace
}  // namespace virga::cluster
