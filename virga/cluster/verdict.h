#pragma once

#include <map>
#include <optional>

#include "virga/cluster/control.h"

namespace virga::cluster {

// Whom rank 0 blames when all it has are deadlines that passed: see Control.
class Verdict {
 public:
  explicit Verdict(Duration heartbeat_period) : patience_(3 * heartbeat_period) {}

  // A report with kDeadlineExceeded; its reporter is set. The first of each rank counts.
  void add(const Abort& report, Time now);
  bool pending() const { return !reports_.empty(); }
  bool has_report_of(Rank rank) const { return reports_.count(rank) > 0; }

  // The verdict once it can be given, at the latest three heartbeats after the first report.
  // `last_heard` has the ranks that ought to be alive.
  std::optional<Abort> decide(const std::map<Rank, Time>& last_heard, Time now) const;

 private:
  Abort follow_blame() const;
  Abort blame_silent(Rank rank, Duration silence) const;

  const Duration patience_;
  std::map<Rank, Abort> reports_;
  Rank first_reporter_ = -1;
  Time first_at_{0};
};

}  // namespace virga::cluster
