#include "virga/cluster/verdict.h"

#include <set>

namespace virga::cluster {
namespace {

// Time for a better founded report, say of a broken connection, to arrive.
constexpr Duration kGrace = std::chrono::milliseconds(200);

}  // namespace

void Verdict::add(const Abort& report, Time now) {
  if (reports_.empty()) {
    first_reporter_ = report.reporter;
    first_at_ = now;
  }
  reports_.emplace(report.reporter, report);
}

std::optional<Abort> Verdict::decide(const std::map<Rank, Time>& last_heard, Time now) const {
  if (!pending() || now < first_at_ + kGrace) return std::nullopt;
  Rank silent = -1;
  Time oldest = first_at_;
  for (const auto& [rank, heard] : last_heard) {
    if (heard >= oldest) continue;
    silent = rank;
    oldest = heard;
  }
  if (silent < 0) return follow_blame();
  if (now < first_at_ + patience_) return std::nullopt;
  return blame_silent(silent, now - oldest);
}

Abort Verdict::follow_blame() const {
  std::set<Rank> seen;
  auto report = reports_.find(first_reporter_);
  while (seen.insert(report->first).second) {
    const auto next = reports_.find(report->second.culprit);
    if (next == reports_.end()) break;
    report = next;
  }
  return report->second;
}

Abort Verdict::blame_silent(Rank rank, Duration silence) const {
  Abort abort = reports_.at(first_reporter_);
  abort.code = ErrorCode::kPeerLost;
  abort.culprit = rank;
  abort.reason = fmt::format("rank {} has been silent for {:.1f} s (stopped, hung or cut off); {}", rank,
                             to_seconds(silence), abort.reason);
  return abort;
}

}  // namespace virga::cluster
