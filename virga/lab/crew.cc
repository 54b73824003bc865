#include "virga/lab/crew.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "virga/base/error.h"
#include "virga/lab/output.h"

namespace virga::lab {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;

constexpr double kSecondsFromTermToKill = 5;
constexpr int kTimeoutStatus = 124;  // as timeout(1)

template <class Clock>
typename Clock::time_point after(typename Clock::time_point start, double seconds) {
  // Days are for ever here; this keeps the sum from overflowing.
  const double bounded = std::min(seconds, 1e8);
  return start + duration_cast<typename Clock::duration>(duration<double>(bounded));
}

FileDescriptor open_pidfd(pid_t pid) {
  FileDescriptor fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (fd.valid()) return fd;
  const int error = errno;
  ::kill(pid, SIGKILL);
  reap(pid);
  fail(ErrorCode::kUnavailable, "can't watch a process (pidfd_open, Linux 5.3): {}", std::strerror(error));
}

void add_to(std::vector<pollfd>& set, int fd) {
  if (fd >= 0) set.push_back({fd, POLLIN, 0});
}

}  // namespace

struct Crew::Member {
  pid_t pid = -1;
  FileDescriptor pidfd;  // readable once the process has ended; invalid once it is reaped
  std::vector<OutputPump> outputs;
  RankExit exit;

  bool ended() const { return !pidfd.valid(); }
};

Crew::Crew(const CrewOptions& options) : options_(options) {
  require(options.timeout_seconds >= 0 && options.grace_seconds >= 0,
          "timeout and grace are seconds: {} and {} can't be", options.timeout_seconds, options.grace_seconds);
}

Crew::~Crew() {
  signal_all(SIGKILL);
  for (const auto& member : members_) {
    if (!member->ended()) reap(member->pid);
  }
}

void Crew::add(SpawnOptions spawn_options) {
  auto member = std::make_unique<Member>();
  const int rank = size();
  if (rank == 0) started_ = Clock::now();
  std::vector<FileDescriptor> theirs;
  const auto attach = [&](int& target, auto... where) {
    auto [read_end, write_end] = make_pipe();
    target = write_end.get();
    theirs.push_back(std::move(write_end));
    member->outputs.emplace_back(std::move(read_end), where...);
  };
  if (options_.output == Output::kCapture) {
    attach(spawn_options.stdout_fd, &member->exit.output);
    spawn_options.stderr_fd = spawn_options.stdout_fd;
  } else if (rank > 0) {
    const std::string prefix = fmt::format("[{}] ", rank);
    attach(spawn_options.stdout_fd, STDOUT_FILENO, prefix);
    attach(spawn_options.stderr_fd, STDERR_FILENO, prefix);
  }
  spawn_options.own_group = true;
  member->pid = spawn(spawn_options);
  member->pidfd = open_pidfd(member->pid);
  members_.push_back(std::move(member));
}

void Crew::signal(int rank, int signal_number) {
  require(rank >= 0 && rank < size(), "there is no rank {} among {}", rank, size());
  // Not reaped yet, so neither the process id nor that of the group can be another's.
  if (!members_[rank]->ended()) ::kill(-members_[rank]->pid, signal_number);
}

void Crew::signal_all(int signal_number) {
  for (int rank = 0; rank < size(); ++rank) signal(rank, signal_number);
}

bool Crew::all_ended() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& m) { return m->ended(); });
}

const std::string& Crew::output(int rank) const {
  require(options_.output == Output::kCapture, "output of ranks is kept with Output::kCapture only");
  require(rank >= 0 && rank < size(), "there is no rank {} among {}", rank, size());
  return members_[rank]->exit.output;
}

bool Crew::wait_for_output(int rank, std::string_view text, double seconds) {
  const std::string& written = output(rank);
  const Member& member = *members_[rank];
  const auto deadline = after<Clock>(Clock::now(), seconds);
  while (written.find(text) == std::string::npos) {
    if (member.ended() || Clock::now() >= deadline) return false;
    step(deadline);
  }
  return true;
}

CrewResult Crew::wait() {
  while (!all_ended()) step(Clock::time_point::max());
  CrewResult result;
  result.status = status_;
  result.seconds = duration<double>(Clock::now() - started_).count();
  for (const auto& member : members_) result.ranks.push_back(member->exit);
  return result;
}

// One turn: sleep until something happens or a limit is reached, then look at everything.
void Crew::step(Clock::time_point until) {
  std::vector<pollfd> set;
  add_to(set, options_.interrupt_fd);
  for (const auto& member : members_) {
    add_to(set, member->pidfd.get());
    for (const OutputPump& output : member->outputs) add_to(set, output.fd());
  }
  const auto wake = std::min(until, next_limit());
  int milliseconds = -1;
  if (wake != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now()).count();
    milliseconds = static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
  }
  ::poll(set.data(), set.size(), milliseconds);
  for (int rank = 0; rank < size(); ++rank) {
    for (OutputPump& output : members_[rank]->outputs) output.pump();
    check_exit(rank);
  }
  read_interrupt();
  enforce_limits();
}

void Crew::check_exit(int rank) {
  Member& member = *members_[rank];
  pollfd ended{member.pidfd.get(), POLLIN, 0};
  if (member.ended() || ::poll(&ended, 1, 0) != 1) return;
  // What the rank has left in its group goes with it, before its id is free for others.
  ::kill(-member.pid, SIGKILL);
  const int wait_status = reap(member.pid);
  member.pidfd.reset();
  for (OutputPump& output : member.outputs) output.finish();
  member.exit.signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  member.exit.status = member.exit.signal != 0 ? 128 + member.exit.signal : WEXITSTATUS(wait_status);
  if (member.exit.status == 0 || failed_at_ != Clock::time_point::max()) return;
  failed_at_ = Clock::now();
  if (status_ == 0) status_ = member.exit.status;
}

void Crew::read_interrupt() {
  signalfd_siginfo info;
  if (options_.interrupt_fd < 0) return;
  while (::read(options_.interrupt_fd, &info, sizeof info) == sizeof info) {
    const bool impatient = stop_at_ != Clock::time_point::max();
    if (impatient) {
      signal_all(SIGKILL);
    } else {
      begin_stop(128 + static_cast<int>(info.ssi_signo));
    }
  }
}

void Crew::begin_stop(int status) {
  status_ = status;
  stop_at_ = Clock::now();
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // a stopped process hears nothing
}

Crew::Clock::time_point Crew::next_limit() const {
  const auto never = Clock::time_point::max();
  if (killed_) return never;
  if (stop_at_ != never) return after<Clock>(stop_at_, kSecondsFromTermToKill);
  auto limit = never;
  if (options_.timeout_seconds > 0) limit = after<Clock>(started_, options_.timeout_seconds);
  if (failed_at_ != never) limit = std::min(limit, after<Clock>(failed_at_, options_.grace_seconds));
  return limit;
}

void Crew::enforce_limits() {
  const auto now = Clock::now();
  if (now < next_limit() || all_ended()) return;
  if (stop_at_ != Clock::time_point::max()) {
    killed_ = true;
    signal_all(SIGKILL);
    return;
  }
  const bool timed_out = options_.timeout_seconds > 0 && now >= after<Clock>(started_, options_.timeout_seconds);
  begin_stop(timed_out ? kTimeoutStatus : status_);
}

}  // namespace virga::lab
