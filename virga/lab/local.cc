#include "virga/lab/local.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "virga/base/error.h"

namespace virga::lab {
namespace {

constexpr int kMostRanks = 1024;
constexpr int kPortAttempts = 100;

struct BoundPort {
  FileDescriptor socket;
  int port = 0;  // 0: could not be bound
};

// Binds `port` on 127.0.0.1; 0: any free one.
BoundPort bind_port(int port) {
  BoundPort bound{FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (::bind(bound.socket.get(), generic, length) != 0) return bound;
  if (::getsockname(bound.socket.get(), generic, &length) != 0) return bound;
  bound.port = ntohs(address.sin_port);
  return bound;
}

// MASTER_PORT is left to others (torch's stores); the rendezvous binds the one above it. So both
// must be free.
int free_master_port() {
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    const BoundPort lower = bind_port(0);
    if (lower.port == 0 || lower.port == 65535) continue;
    const BoundPort upper = bind_port(lower.port + 1);
    if (upper.port != 0) return lower.port;
  }
  fail(ErrorCode::kResourceExhausted, "found no two free ports in a row on 127.0.0.1");
}

}  // namespace

void add_local_ranks(Crew& crew, int ranks, const Arguments& command) {
  require(ranks >= 1 && ranks <= kMostRanks, "a local run has 1 to {} ranks, not {}", kMostRanks, ranks);
  const std::string port = std::to_string(free_master_port());
  const std::string size = std::to_string(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = std::to_string(rank);
    SpawnOptions spawn_options;
    spawn_options.argv = command;
    spawn_options.environment = {
        {"RANK", name},      {"WORLD_SIZE", size},         {"LOCAL_RANK", name}, {"LOCAL_WORLD_SIZE", size},
        {"GROUP_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
    spawn_options.die_with_parent = true;
    crew.add(std::move(spawn_options));
  }
}

CrewResult run_local(int ranks, const Arguments& command, const CrewOptions& options) {
  Crew crew(options);
  add_local_ranks(crew, ranks, command);
  return crew.wait();
}

}  // namespace virga::lab
