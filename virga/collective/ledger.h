#pragma once

#include <compare>
#include <span>
#include <vector>

#include "virga/cluster/figures.h"
#include "virga/cluster/topology.h"
#include "virga/collective/lanes.h"

namespace virga::collective {

using cluster::Figures;
using cluster::LinkFigures;

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
//   course  begins with the slice; the courses of a slice don't wait for each other, but share links
//   round   after the round before it, within the course: messages that leave at the same time, then the work on them
//
// What several groups or members do at once is entered one after the other, by at_once().
//
// Time of a round: the latency, and the busiest link's bytes at its rate, then the longest work. A link is a host's,
// each way, or a rank's own inside its host. A link between hosts that has been idle carries what it saved up, a burst
// at most, in no time. A message above its link's segment costs its receiver a copy. Time of a
// slice: its longest course's rounds; or the time until any course uses a link, what all of them take of it, and the
// least that any has to do after that, whichever is more. Time of a phase: the first slice; every further slice adds
// what its busiest link takes, less what that link can carry while it is idle in between in the first slice, or the
// time for which it holds one of a member's lanes, whichever is more. The simulator is the judge of that
// (tests/collective/cost_test.cc).
class Ledger {
 public:
  Ledger(const cluster::Topology& layout, const Figures& figures);

  void phase(size_t lanes = kLanes);
  void slice(size_t count = 1);  // so many equal ones
  void course();
  void round();
  // One member's message or messages to another.
  void send(int from, int to, size_t bytes, size_t messages = 1);
  // Work on elements that follows the messages of the round; see Worker::run.
  void work(int member, size_t bytes_touched);

  // What branch(0), ..., branch(count - 1) enter happens at the same time: each begins where this call did, and its
  // phases, slices and rounds are those that the others enter, too.
  template <class Branch>
  void at_once(int count, Branch branch) {
    const Cursor begin = cursor_;
    Cursor end = begin;
    for (int i = 0; i < count; ++i) {
      cursor_ = begin;
      branch(i);
      end = std::max(end, cursor_);
    }
    cursor_ = end;
  }

  // While it lives, member i of what is entered is member positions[i].
  class Members {
   public:
    Members(Ledger& ledger, std::span<const int> positions);
    ~Members() { ledger_.members_ = std::move(before_); }
    Members(const Members&) = delete;
    Members& operator=(const Members&) = delete;

   private:
    Ledger& ledger_;
    std::vector<int> before_;
  };

  double seconds() const;
  // Messages, one after the other, that one slice of each phase takes.
  int rounds() const;
  const Sent& sent(int member) const { return sent_[static_cast<size_t>(member)]; }
  // Payload bytes that a host sends to others.
  uint64_t host_bytes(int host) const { return host_bytes_[static_cast<size_t>(host)]; }

 private:
  // Seconds for which each link, each memory and each member is busy.
  struct Busy {
    explicit Busy(const cluster::Topology& layout);
    void add(const Busy& more);
    std::vector<double> links() const;  // all of them in a row
    double highest_link() const;
    double highest_memory() const;
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
  using Course = std::vector<Round>;
  // A round with what links had saved up before it.
  struct Pass {
    double seconds = 0;
    std::vector<double> links;  // for how long each keeps messages waiting
  };
  struct Slice {
    size_t count = 0;
    std::vector<Course> courses;
  };
  struct Phase {
    size_t lanes = kLanes;
    std::vector<Slice> slices;
  };
  struct Cursor {
    int phase = -1, slice = -1, course = -1, round = -1;
    size_t count = 1;  // of the slice, as whoever is entering has said
    auto operator<=>(const Cursor&) const = default;
  };

  // What one slice takes.
  struct Alone {
    double seconds = 0;
    std::vector<double> links;  // for how long each is busy with what it carries
    std::vector<double> idle;   // for how long each could carry something else, between its first message and its last
    double others = 0;          // what its memory or its lane takes from further slices
  };

  Round& here();
  std::vector<Pass> passes(const Course& course) const;
  int member(int given) const { return members_.empty() ? given : members_[static_cast<size_t>(given)]; }
  Alone alone(const Slice& slice, size_t lanes) const;
  double seconds_of(const Phase& phase) const;

  const cluster::Topology& layout_;
  const Figures figures_;
  std::vector<Sent> sent_;
  std::vector<uint64_t> host_bytes_;
  std::vector<Phase> phases_;
  Cursor cursor_;
  std::vector<int> members_;  // empty: as they are
};

}  // namespace virga::collective
