#include "virga/net/sim/world.h"

#include <algorithm>
#include <utility>

#include "virga/net/sim/message.h"
#include "virga/net/sim/transport.h"

namespace virga::net::sim {
namespace {

Duration time_for(double bytes, double bytes_per_second) { return from_seconds(bytes / bytes_per_second); }

// Heavy work runs inline and costs virtual time; one rank's works queue behind each other.
class VirtualWorker final : public Worker {
 public:
  VirtualWorker(Loop& loop, double bytes_per_second) : loop_(loop), bytes_per_second_(bytes_per_second) {}

  bool stays_on_loop(size_t) const override { return false; }
  Task<void> run(size_t bytes_touched, std::function<void()> work) override {
    free_ = std::max(free_, loop_.now()) + time_for(static_cast<double>(bytes_touched), bytes_per_second_);
    const Time end = free_;
    work();
    co_await sleep_until(end);
  }

 private:
  Loop& loop_;
  const double bytes_per_second_;
  Time free_{0};
};

}  // namespace

World::World(Loop& loop, Options options) : loop_(loop), options_(std::move(options)), random_(options_.seed) {
  require(!options_.ranks_per_host.empty(), "a simulated world needs at least one host");
  hosts_.resize(options_.ranks_per_host.size());
  int world_size = 0;
  for (int ranks : options_.ranks_per_host) {
    require(ranks > 0, "a simulated host needs at least one rank, got {}", ranks);
    world_size += ranks;
  }
  ranks_.resize(world_size);
  Rank rank = 0;
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (int i = 0; i < options_.ranks_per_host[host]; ++i, ++rank) {
      RankState& state = ranks_[rank];
      state.host = static_cast<int>(host);
      state.transport = std::make_unique<SimTransport>(*this, rank, world_size, options_.limits);
      state.worker = std::make_unique<VirtualWorker>(loop_, options_.memory_bytes_per_second);
      state.last_arrival.assign(world_size, Time{0});
    }
  }
}

World::~World() = default;

Transport& World::transport(Rank rank) { return *ranks_[rank].transport; }
Worker& World::worker(Rank rank) { return *ranks_[rank].worker; }

bool World::responsive(Rank rank) const {
  const RankState& state = ranks_[rank];
  return !state.killed && !state.paused && !hosts_[state.host].cut;
}

void World::kill(Rank rank) {
  RankState& state = ranks_[rank];
  if (state.killed) return;
  state.killed = true;
  state.transport->die(Error(ErrorCode::kCancelled, fmt::format("rank {} was killed", rank), rank));
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer == rank || ranks_[peer].host == state.host) continue;
    const Duration notice = std::chrono::milliseconds(20 + static_cast<int64_t>(random_.below(46)));
    loop_.call_at(loop_.now() + notice, [this, peer, rank] {
      if (alive(peer) && !hosts_[ranks_[rank].host].cut && !hosts_[ranks_[peer].host].cut) {
        ranks_[peer].transport->peer_died(rank);
      }
    });
  }
}

void World::pause(Rank rank) { ranks_[rank].paused = true; }

void World::resume(Rank rank) {
  ranks_[rank].paused = false;
  release(ranks_[rank].held);
}

void World::cut(int host) { hosts_[host].cut = true; }

void World::mend(int host) {
  hosts_[host].cut = false;
  release(hosts_[host].held);
}

void World::release(std::vector<MessagePtr>& held) {
  for (const MessagePtr& message : std::exchange(held, {})) transmit(message);
}

void World::transmit(const MessagePtr& message) {
  if (message->dropped() || hold_back(message)) return;
  if (ranks_[message->from].host == ranks_[message->to].host) {
    transmit_inside(message);
  } else {
    transmit_between(message);
  }
}

// A message that can't move now waits with whoever stops it, and starts over when that changes.
bool World::hold_back(const MessagePtr& message) {
  for (Rank rank : {message->from, message->to}) {
    if (ranks_[rank].paused) {
      ranks_[rank].held.push_back(message);
      return true;
    }
  }
  const int from = ranks_[message->from].host, to = ranks_[message->to].host;
  if (from == to) return false;
  for (int host : {from, to}) {
    if (hosts_[host].cut) {
      hosts_[host].held.push_back(message);
      return true;
    }
  }
  return false;
}

Duration World::latency(const Link& link) {
  if (options_.latency_jitter == 0) return link.latency;
  return from_seconds(to_seconds(link.latency) * (1 + options_.latency_jitter * random_.uniform()));
}

Time World::in_order(const Message& message, Time arrival) {
  Time& last = ranks_[message.from].last_arrival[message.to];
  last = std::max(last, arrival);
  return last;
}

void World::transmit_inside(const MessagePtr& message) {
  const Link& link = options_.inside_host;
  Time& free = ranks_[message->from].inside_free;
  free = std::max(free, loop_.now()) + time_for(static_cast<double>(message->wire_bytes()), link.bytes_per_second);
  loop_.call_at(in_order(*message, free + latency(link)), [this, message] { deliver(message); });
}

void World::transmit_between(const MessagePtr& message) {
  const Link& link = options_.between_hosts;
  HostState& host = hosts_[ranks_[message->from].host];
  const Duration saved = time_for(link.burst_bytes, link.bytes_per_second);
  const Time due = std::max(host.egress_free, loop_.now());
  host.egress_free = due + time_for(static_cast<double>(message->wire_bytes()), link.bytes_per_second);
  const Time start = std::max(due - saved, loop_.now()), sent = std::max(host.egress_free - saved, loop_.now());
  host.bytes_sent += message->wire_bytes();
  const Time head = in_order(*message, start + latency(link));
  loop_.call_at(head, [this, message, sent] { head_arrives(message, sent); });
}

// The receiving side is a FIFO server too: two hosts that send to a third share its link.
void World::head_arrives(const MessagePtr& message, Time sent) {
  const Link& link = options_.between_hosts;
  HostState& host = hosts_[ranks_[message->to].host];
  const Duration saved = time_for(link.burst_bytes, link.bytes_per_second);
  const Time begin = std::max(host.ingress_free, loop_.now()), end = sent + link.latency;
  const Duration body = time_for(static_cast<double>(message->wire_bytes()), link.bytes_per_second);
  host.ingress_free = std::max(begin + body, end);
  loop_.call_at(std::max(host.ingress_free - saved, end), [this, message] { deliver(message); });
}

void World::deliver(const MessagePtr& message) {
  if (message->dropped() || !alive(message->to) || hold_back(message)) return;
  const Header header = message->transfer->header();
  const size_t bytes = message->transfer->buffer().bytes;
  ranks_[message->from].transport->sent(message->transfer);
  ranks_[message->to].transport->arrive(std::make_unique<SimArrival>(header, bytes, std::move(message->payload)));
}

}  // namespace virga::net::sim
