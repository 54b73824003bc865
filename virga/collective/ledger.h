#pragma once

#include <vector>

#include "virga/cluster/topology.h"
#include "virga/collective/figures.h"
#include "virga/collective/vector.h"

namespace virga::collective {

// What one member sends in an operation: payload, and the messages that it is in.
struct Sent {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  bool operator==(const Sent&) const = default;
};

// What an algorithm costs. An algorithm enters what it does, round by round; the ledger adds up bytes, messages, rounds
// and time. It does not know any algorithm.
//
//   phase   after the phase before it has ended
//   slice   up to `lanes` slices of a phase are under way at once, and share links
//   round   after the round before it, within the slice: messages that leave at the same time, then the work on them
//
// Time of a round: the latency, and the busiest link's bytes at its rate. A link is a host's, each way, or a rank's own
// inside its host. Time of a phase: the first slice's rounds; every further slice adds what its busiest link takes, or
// the time for which it holds one of a member's lanes, whichever is more. The simulator is the judge of that
// (tests/collective/sim_cost_test.cc).
class Ledger {
 public:
  Ledger(const cluster::Topology& layout, const Figures& figures);

  void phase(size_t lanes = kLanes);
  void slice(size_t count = 1);  // so many equal ones
  void round();
  // One member's message or messages to another.
  void send(int from, int to, size_t bytes, size_t messages = 1);
  // Work on elements that follows the messages of the round; see Worker::run.
  void work(int member, size_t bytes_touched);

  // Closes what is open.
  double seconds();
  // Messages, one after the other, that one slice of each phase takes.
  int rounds();
  const Sent& sent(int member) const { return sent_[static_cast<size_t>(member)]; }
  // Payload bytes that a host sends to others.
  uint64_t host_bytes(int host) const { return host_bytes_[static_cast<size_t>(host)]; }

 private:
  // Seconds for which each link, each memory and each member is busy.
  struct Busy {
    explicit Busy(const cluster::Topology& layout);
    std::vector<double> egress, ingress;  // by host
    std::vector<double> inside, memory;   // by member: its way out inside the host, its work
  };
  struct Round {
    explicit Round(const cluster::Topology& layout) : busy(layout), takes_part(layout.world_size()) {}
    Busy busy;
    double latency = 0;
    bool sends = false;
    std::vector<char> takes_part;
  };
  struct Slice {
    explicit Slice(const cluster::Topology& layout) : busy(layout), held(layout.world_size()) {}
    size_t count = 0;
    double seconds = 0;
    int rounds = 0;
    Busy busy;
    std::vector<double> held;  // by member: how long it holds a lane
  };

  void close_round();
  void close_slice();
  void close_phase();

  const cluster::Topology& layout_;
  const Figures figures_;
  std::vector<Sent> sent_;
  std::vector<uint64_t> host_bytes_;
  Round round_;
  Slice slice_;
  size_t lanes_ = kLanes;
  double phase_seconds_ = 0;
  int phase_rounds_ = 0;
  bool first_slice_ = true;
  double seconds_ = 0;
  int rounds_ = 0;
};

}  // namespace virga::collective
