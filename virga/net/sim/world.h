#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "virga/base/random.h"
#include "virga/net/mailbox.h"
#include "virga/net/transport.h"
#include "virga/runtime/worker.h"

namespace virga::net::sim {

class SimTransport;

// A link is a FIFO server: bytes leave one after the other at the rate, and arrive a latency later. One between hosts
// may save up for bursts while it is idle, as a token bucket does.
struct Link {
  double bytes_per_second = 0;
  Duration latency{0};
  double burst_bytes = 0;
};

struct Options {
  std::vector<int> ranks_per_host;                           // ranks are numbered host by host
  Link between_hosts{125e6, std::chrono::microseconds(50)};  // 1 Gbit/s; each direction of a host's one link
  Link inside_host{10e9, std::chrono::microseconds(1)};      // each rank's way to its neighbours
  double memory_bytes_per_second = 8e9;                      // what Worker::run charges by
  double latency_jitter = 0;  // each message's latency is stretched by up to this fraction, drawn by seed
  uint64_t seed = 1;
  Mailbox::Limits limits{};
};

// A deterministic world of virtual hosts and ranks on one loop with a virtual clock: the same seed gives the same
// run to the bit. Every rank has a Transport that holds the contract and a Worker that charges time.
class World {
 public:
  World(Loop& loop, Options options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Loop& loop() { return loop_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int host_of(Rank rank) const { return ranks_[rank].host; }
  Transport& transport(Rank rank);
  Worker& worker(Rank rank);

  // What goes wrong. A killed rank's own transfers fail at once; its peers on other hosts learn of it like TCP does,
  // after 20-65 ms; those on its host never do, as with shared memory. A paused rank neither sends nor receives until
  // it is resumed; its timers go on. A cut host exchanges nothing with other hosts until it is mended.
  void kill(Rank rank);
  void pause(Rank rank);
  void resume(Rank rank);
  void cut(int host);
  void mend(int host);

  bool alive(Rank rank) const { return !ranks_[rank].killed; }
  // Neither killed, paused nor cut off: whether heartbeats of this rank get out.
  bool responsive(Rank rank) const;

  // Bytes that left a host through its link, headers included.
  uint64_t host_bytes_sent(int host) const { return hosts_[host].bytes_sent; }

 private:
  friend class SimTransport;
  struct Message;
  using MessagePtr = std::shared_ptr<Message>;

  struct HostState {
    Time egress_free{0};
    Time ingress_free{0};
    uint64_t bytes_sent = 0;
    bool cut = false;
    std::vector<MessagePtr> held;  // waiting for the host to be mended
  };
  struct RankState {
    int host = 0;
    std::unique_ptr<SimTransport> transport;
    std::unique_ptr<Worker> worker;
    Time inside_free{0};
    bool killed = false;
    bool paused = false;
    std::vector<MessagePtr> held;    // waiting for the rank to be resumed
    std::vector<Time> last_arrival;  // by destination: messages of one pair never overtake each other
  };

  void transmit(const MessagePtr& message);
  void transmit_inside(const MessagePtr& message);
  void transmit_between(const MessagePtr& message);
  void head_arrives(const MessagePtr& message, Time sent);
  void deliver(const MessagePtr& message);
  bool hold_back(const MessagePtr& message);
  Duration latency(const Link& link);
  Time in_order(const Message& message, Time arrival);
  void release(std::vector<MessagePtr>& held);

  Loop& loop_;
  const Options options_;
  Random random_;
  std::vector<HostState> hosts_;
  std::vector<RankState> ranks_;
};

}  // namespace virga::net::sim
