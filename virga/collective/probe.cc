#include "virga/collective/probe.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/common_start.h"
#include "virga/collective/neighbor_exchange/neighbor_exchange.h"
#include "virga/kernel/reduce.h"

namespace virga::collective {
namespace {

using cluster::Comm;
using cluster::Figures;
using cluster::Group;
using cluster::LinkFigures;

constexpr size_t kMostBytes = size_t{16} << 20;  // of one transfer
constexpr size_t kPiece = 60 << 10;              // fits into a segment of shared memory
constexpr double kEnoughSeconds = 0.1;           // that a transfer should take
constexpr size_t kRepetitions = 3;               // of which the median counts
constexpr size_t kPasses = 10;                   // over the arrays of the memory's measurement
constexpr int kRounds = 8;                       // messages, one after the other, of one repetition
constexpr size_t kBursts = 15;                   // single messages, of which the median counts

// What all ranks measure together: every time is that of the slowest.
class Probe {
 public:
  explicit Probe(Comm& comm) : comm_(comm), out_(kMostBytes), in_(kMostBytes) {}

  Task<void> synchronize() { return start_.synchronize(comm_); }

  // One way between ranks, in messages of so many bytes: this rank's group on it, or none if it only waits for others.
  Task<LinkFigures> link(std::optional<Group> group, size_t message, LinkFigures figures) {
    const double rounds = co_await median_of_shifts(group, kWord, kWord, kRounds);
    figures.latency_seconds = rounds / kRounds;
    size_t bytes = kPiece;
    double seconds = 0;
    do {
      bytes = std::min(2 * bytes, kMostBytes);
      seconds = co_await shift(group, bytes, message, 1);
    } while (seconds < kEnoughSeconds && bytes < kMostBytes);
    seconds = co_await median_of_shifts(group, bytes, message, 1);
    const double on_link = std::max(seconds - figures.latency_seconds, seconds / 10);  // noise may not leave nothing
    figures.bytes_per_second = static_cast<double>(bytes) / on_link;
    const size_t shorter = shorter_message(figures);
    figures.message_seconds = 0;
    if (2 * shorter <= std::min(message, bytes)) {
      const double more = co_await median_of_shifts(group, bytes, shorter, 1) - seconds;
      split(bytes, on_link, std::max(more, 0.0), message, shorter, figures);
    }
    co_return figures;
  }

  // What a link lets through at once after it was idle: by which a message is there earlier than its rate allows.
  Task<double> burst_bytes(std::optional<Group> group, LinkFigures figures) {
    const size_t bytes = std::min(std::max(2 * shorter_message(figures), kPiece / 4), kPiece);
    std::vector<double> seconds;
    double all = 0;
    while (seconds.size() < kRepetitions || (seconds.size() < kBursts && all < kEnoughSeconds)) {
      seconds.push_back(co_await shift(group, bytes, bytes, 1));
      all += seconds.back();
    }
    const double waited = median(seconds) - figures.latency_seconds - figures.message_seconds;
    co_return std::clamp(static_cast<double>(bytes) - waited * figures.bytes_per_second, 0.0,
                         static_cast<double>(bytes));
  }

  // Bytes that a reduction reads and writes in a second, from arrays that no cache holds, while all other ranks do the
  // same: long enough for those that share a core to take turns.
  Task<double> memory_bytes_per_second() {
    std::vector<double> seconds;
    for (size_t i = 0; i < kRepetitions; ++i) {
      const Time begin = comm_.loop().now();
      for (size_t done = 0; done < kPasses * kMostBytes; done += kPiece) {
        const size_t at = done % kMostBytes;
        const size_t bytes = std::min(kPiece, kMostBytes - at);
        co_await comm_.worker().run(3 * bytes, [&] {
          kernel::reduce(kernel::ReduceOp::kSum, DType::kFloat32, std::span(out_).subspan(at, bytes),
                         std::span(in_).subspan(at, bytes));
        });
      }
      seconds.push_back(co_await slowest(to_seconds(comm_.loop().now() - begin)));
    }
    co_return 3 * static_cast<double>(kPasses * kMostBytes) / median(seconds);
  }

 private:
  static constexpr size_t kWord = 64;  // bytes of a message whose time is latency

  static double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  Task<double> slowest(double seconds) {
    co_await allreduce(comm_, comm_.topology().world(), std::span(&seconds, 1), Reduction::kMax);
    co_return seconds;
  }

  // Every member of the group sends to the next one and receives from the one before, `rounds` times. All groups begin
  // together, on links that have been idle.
  Task<double> shift(const std::optional<Group>& group, size_t bytes, size_t message, int rounds) {
    const Time begin = co_await start_.wait(comm_);
    for (int round = 0; group && round < rounds; ++round) {
      std::vector<std::vector<int>> next(static_cast<size_t>(group->size()));
      for (int member = 0; member < group->size(); ++member) next[member] = {(member + 1) % group->size()};
      const Vector out(out_.data(), bytes, DType::kByte), in(in_.data(), bytes, DType::kByte);
      const Choice choice("direct", message);
      co_await neighbor_exchange(comm_, *group, out, in, next, choice);
    }
    co_return co_await slowest(to_seconds(comm_.loop().now() - begin));
  }

  Task<double> median_of_shifts(const std::optional<Group>& group, size_t bytes, size_t message, int rounds) {
    std::vector<double> seconds;
    for (size_t i = 0; i < kRepetitions; ++i) seconds.push_back(co_await shift(group, bytes, message, rounds));
    co_return median(seconds);
  }

  // As short as messages may be without being held up by latency: kLanes of them are under way together.
  static size_t shorter_message(const LinkFigures& figures) {
    const double bytes = figures.latency_seconds * figures.bytes_per_second / 2;
    return (std::max(static_cast<size_t>(bytes), size_t{4} << 10) + 63) / 64 * 64;
  }

  // Two equations: the same bytes in long messages, and in shorter ones, which take so much more time.
  static void split(size_t bytes, double seconds, double more, size_t message, size_t shorter, LinkFigures& figures) {
    const auto count = [bytes](size_t each) { return static_cast<double>((bytes + each - 1) / each); };
    const double each = more / (count(shorter) - count(message));
    figures.message_seconds = std::min(each, seconds / 2 / count(message));  // the bytes take time, too
    figures.bytes_per_second = static_cast<double>(bytes) / (seconds - count(message) * figures.message_seconds);
  }

  Comm& comm_;
  CommonStart start_;
  std::vector<std::byte> out_, in_;
};

std::optional<Group> between_hosts(Comm& comm) {
  if (comm.topology().local_index(comm.rank()) > 0) return {};
  return comm.topology().across_hosts(0);
}

// A burst is short: more hosts at once, where they share cores, would only be in each other's way.
std::optional<Group> two_hosts(Comm& comm) {
  const Group group({comm.topology().ranks_of(0).front(), comm.topology().ranks_of(1).front()});
  if (group.member(comm.rank()) < 0) return {};
  return group;
}

std::optional<Group> inside_host(Comm& comm) {
  const Group group = comm.topology().same_host(comm.rank());
  if (group.size() == 1) return {};
  return group;
}

}  // namespace

Task<Figures> probe(Comm& comm, Figures unmeasured) {
  const int hosts = comm.topology().host_count();
  Figures figures = unmeasured;
  Probe probe(comm);
  co_await probe.synchronize();
  if (hosts > 1) {
    figures.between_hosts = co_await probe.link(between_hosts(comm), 16 * kPiece, unmeasured.between_hosts);
    figures.between_hosts.burst_bytes = co_await probe.burst_bytes(two_hosts(comm), figures.between_hosts);
  }
  if (hosts < comm.world_size())
    figures.inside_host = co_await probe.link(inside_host(comm), kPiece, unmeasured.inside_host);
  figures.memory_bytes_per_second = co_await probe.memory_bytes_per_second();
  co_return figures;
}

}  // namespace virga::collective
