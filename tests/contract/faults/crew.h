#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "virga/net/ucx/transport.h"

namespace virga::net::faults {

// Repeats a system call that something else than what it waits for has interrupted: stopped and continued processes are
// what these tests are about.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

inline bool take_bytes(int socket, void* data, size_t size) {
  size_t taken = 0;
  while (taken < size) {
    char* const rest = static_cast<char*>(data) + taken;
    const ssize_t more = uninterrupted([&] { return recv(socket, rest, size - taken, 0); });
    if (more <= 0) return false;
    taken += static_cast<size_t>(more);
  }
  return true;
}

// Length and text over a socket; an empty text stands for a peer that is gone.
inline void put_text(int socket, const std::string& text) {
  const uint32_t size = static_cast<uint32_t>(text.size());
  if (send(socket, &size, sizeof size, MSG_NOSIGNAL) < 0 || send(socket, text.data(), size, MSG_NOSIGNAL) < 0) return;
}
inline std::string take_text(int socket) {
  uint32_t size = 0;
  if (!take_bytes(socket, &size, sizeof size)) return {};
  std::string text(size, '\0');
  if (!take_bytes(socket, text.data(), size)) return {};
  return text;
}

inline size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// A message's address, for tests that do not care about the rest.
inline Header header_of(uint64_t chunk, Rank source) {
  Header header;
  header.kind = OpKind::kAllreduce;
  header.chunk = chunk;
  header.source = source;
  return header;
}

// One rank in a process of its own, as its code sees it.
struct Seat {
  Loop& loop;
  ucx::UcxTransport& transport;
  int parent;  // socket to the parent
  std::vector<std::string> addresses;
  bool same_host;

  void connect() {
    for (Rank rank = 0; rank < transport.world_size(); ++rank) transport.connect(rank, addresses[rank], same_host);
  }
};

// Ranks as processes. Each runs `body` and reports what it found wrong, one line a finding; nothing
// is fine.
class Crew {
 public:
  using Body = std::function<std::string(Seat&)>;

  // `enter` runs first in every process: it may move to another network.
  Crew(
      int size, bool same_host, const char* device, const Body& body,
      const std::function<void(Rank)>& enter = [](Rank) {}) {
    for (Rank rank = 0; rank < size; ++rank) start(rank, size, same_host, device, body, enter);
    std::string all;
    std::vector<std::string> addresses;
    for (const int socket : sockets_) addresses.push_back(take_text(socket));
    for (const int socket : sockets_) {
      for (const std::string& address : addresses) put_text(socket, address);
    }
  }
  ~Crew() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    for (const int socket : sockets_) close(socket);
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::string listen(Rank rank) { return take_text(sockets_[rank]); }
  void tell(Rank rank, const std::string& text) { put_text(sockets_[rank], text); }
  // Blocks until the rank is dead or stopped, whichever its own code brings about.
  void wait_for_signal(Rank rank) {
    siginfo_t info{};
    uninterrupted([&] { return waitid(P_PID, static_cast<id_t>(pids_[rank]), &info, WEXITED | WSTOPPED | WNOWAIT); });
  }
  void resume(Rank rank) { ::kill(pids_[rank], SIGCONT); }
  // The status with which a rank's process ends by itself.
  int exit_status(Rank rank) {
    int status = 0;
    uninterrupted([&] { return waitpid(pids_[rank], &status, 0); });
    return status;
  }

 private:
  void start(Rank rank, int size, bool same_host, const char* device, const Body& body,
             const std::function<void(Rank)>& enter) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      close(pair[0]);
      for (const int socket : sockets_) close(socket);
      enter(rank);
      std::exit(live(rank, size, same_host, device, pair[1], body));
    }
    close(pair[1]);
    pids_.push_back(pid);
    sockets_.push_back(pair[0]);
  }

  static int live(Rank rank, int size, bool same_host, const char* device, int parent, const Body& body) {
    alarm(60);
    const size_t before = open_descriptors();
    std::string report;
    try {
      SteadyClock clock;
      Loop loop(clock);
      ucx::UcxTransport transport(loop, ucx::UcxTransport::Options(rank, size, device));
      Seat seat{loop, transport, parent, {}, same_host};
      put_text(parent, transport.address());
      for (int i = 0; i < size; ++i) seat.addresses.push_back(take_text(parent));
      report = body(seat);
    } catch (const std::exception& error) {
      report += fmt::format("unexpected: {}\n", error.what());
    }
    // After a failure inside a host UCX's worker may stay with the process: Context::abandon().
    const size_t left = open_descriptors() - before;
    const bool abandoned = same_host && left > 0 && left <= kAbandonedDescriptors;
    if (left != 0 && !abandoned) report += fmt::format("{} descriptors leaked\n", left);
    put_text(parent, "report:" + report);
    const int status = report.empty() ? 0 : 1;
    if (abandoned) std::_Exit(status);  // past the search for leaks, which can't tell this one from others
    return status;
  }

  static constexpr size_t kAbandonedDescriptors = 12;

  std::vector<pid_t> pids_;
  std::vector<int> sockets_;
};

}  // namespace virga::net::faults
