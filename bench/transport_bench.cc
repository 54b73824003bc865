// What the transport itself costs: half a round trip and the bandwidth of one direction between two
// processes, by shared memory as inside a host and by TCP over the loopback device.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "virga/net/ucx/transport.h"

namespace virga::net {
namespace {

using namespace std::chrono_literals;

constexpr size_t kTotal = 512 << 20;
constexpr size_t kSizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20};

Header header_of(uint64_t chunk) {
  Header header;
  header.kind = OpKind::kBroadcast;
  header.chunk = chunk;
  return header;
}

Task<void> finish_soon(Transport& transport, TransferPtr transfer) {
  CancelScope scope;
  const Deadline deadline = Deadline::after(transport.loop().clock(), 60s);
  co_await finish(transport, std::move(transfer), deadline, scope);
}

// Seconds of half a round trip of 8 bytes, the median of many.
Task<double> half_round_trip(Transport& transport, int rounds) {
  const Rank peer = 1 - transport.rank();
  uint64_t out = 0, in = 0;
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const Time begin = transport.loop().now();
    const TransferPtr arrival = transport.receive(peer, header_of(0), {reinterpret_cast<std::byte*>(&in), 8});
    if (transport.rank() == 1) co_await finish_soon(transport, arrival);
    const ConstBuffer ping{reinterpret_cast<std::byte*>(&out), 8};
    co_await finish_soon(transport, transport.send(peer, header_of(0), ping));
    if (transport.rank() == 0) co_await finish_soon(transport, arrival);
    times.push_back(to_seconds(transport.loop().now() - begin) / 2);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  co_return times[times.size() / 2];
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Stream {
  double gigabytes_per_second = 0;
  double cpu_seconds_per_gigabyte = 0;  // of both ranks
};

// From rank 0 to rank 1, with at most four messages under way.
Task<Stream> stream(Transport& transport, size_t bytes, size_t total) {
  constexpr size_t kWindow = 4;
  std::vector<std::vector<std::byte>> buffers(kWindow, std::vector<std::byte>(bytes, std::byte{1}));
  std::vector<TransferPtr> window(kWindow);
  const size_t count = std::max(kWindow, total / bytes);
  const double gigabytes = static_cast<double>(count * bytes) / 1e9;
  const Time begin = transport.loop().now();
  const double cpu_begin = cpu_seconds();
  for (size_t i = 0; i < count + kWindow; ++i) {
    TransferPtr& slot = window[i % kWindow];
    if (slot) co_await finish_soon(transport, slot);
    if (i >= count) continue;
    std::vector<std::byte>& buffer = buffers[i % kWindow];
    slot = transport.rank() == 0 ? transport.send(1, header_of(i + 1), {buffer.data(), bytes})
                                 : transport.receive(0, header_of(i + 1), {buffer.data(), bytes});
  }
  double cpu = cpu_seconds() - cpu_begin, other_cpu = 0;
  const TransferPtr last =
      transport.rank() == 1
          ? transport.send(0, header_of(0), {reinterpret_cast<const std::byte*>(&cpu), sizeof cpu})
          : transport.receive(1, header_of(0), {reinterpret_cast<std::byte*>(&other_cpu), sizeof cpu});
  co_await finish_soon(transport, last);
  co_return Stream{gigabytes / to_seconds(transport.loop().now() - begin), (cpu + other_cpu) / gigabytes};
}

std::string swap_addresses(int socket, const std::string& mine) {
  const uint32_t size = mine.size();
  std::string theirs;
  uint32_t their_size = 0;
  if (write(socket, &size, sizeof size) < 0 || write(socket, mine.data(), size) < 0 ||
      read(socket, &their_size, sizeof their_size) < 0) {
    std::exit(1);
  }
  theirs.resize(their_size);
  for (size_t got = 0; got < their_size;) got += read(socket, &theirs[got], their_size - got);
  return theirs;
}

// Each rank on a core of its own, as where ranks do not outnumber cores.
void pin(Rank rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(rank, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

void measure(Rank rank, int socket, bool inside, const char* device) {
  pin(rank);
  SteadyClock clock;
  Loop loop(clock);
  ucx::UcxTransport transport(loop, ucx::UcxTransport::Options(rank, 2, device));
  transport.connect(1 - rank, swap_addresses(socket, transport.address()), inside);
  std::string row = inside ? "shared memory" : "tcp";
  loop.run(half_round_trip(transport, 1000));  // warms up
  row += fmt::format(" | {:.1f}", loop.run(half_round_trip(transport, 5000)) * 1e6);
  for (const size_t bytes : kSizes) {
    loop.run(stream(transport, bytes, bytes * 4));
    const Stream got = loop.run(stream(transport, bytes, kTotal));
    row += fmt::format(" | {:.2f} ({:.2f})", got.gigabytes_per_second, got.cpu_seconds_per_gigabyte);
  }
  if (rank == 0) fmt::print("| {} |\n", row);
  std::fflush(stdout);
}

void run_pair(bool inside, const char* device) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) std::exit(1);
  for (Rank rank = 0; rank < 2; ++rank) {
    if (fork() != 0) continue;
    measure(rank, sockets[rank], inside, device);
    std::exit(0);
  }
  for (int i = 0; i < 2; ++i) wait(nullptr);
}

}  // namespace
}  // namespace virga::net

int main() {
  std::printf(
      "| way | half round trip (us) | GB/s (CPU s/GB): 64 KiB | 256 KiB "
      "| 1 MiB | 4 MiB | 64 MiB |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n");
  std::fflush(stdout);
  virga::net::run_pair(true, "lo");
  virga::net::run_pair(false, "lo");
}
