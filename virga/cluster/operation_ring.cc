#include "virga/cluster/operation_ring.h"

#include <algorithm>
#include <fmt/format.h>

namespace virga::cluster {
namespace {

std::string_view to_string(OperationRing::State state) {
  switch (state) {
    case OperationRing::State::kRunning:
      return "running";
    case OperationRing::State::kDone:
      return "done";
    case OperationRing::State::kFailed:
      return "failed";
  }
  return "?";
}

}  // namespace

OperationRing::Record& OperationRing::begin(const net::Header& header, Time now) {
  while (records_.size() >= capacity_ && records_.front().state != State::kRunning) records_.pop_front();
  Record& record = records_.emplace_back();
  record.header = header;
  record.begun = now;
  return record;
}

void OperationRing::end(Record& record, State state, Time now, std::string note) {
  record.state = state;
  record.ended = now;
  record.note = std::move(note);
}

std::optional<Error> OperationRing::check(const net::Header& arrival) const {
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    const net::Header& mine = record->header;
    if (mine.group != arrival.group || mine.epoch != arrival.epoch) continue;
    if (mine.operation < arrival.operation) return std::nullopt;  // a group's numbers grow: it has not begun here
    if (mine.operation != arrival.operation) continue;
    const std::string wrong = net::difference(mine, arrival);
    if (wrong.empty()) return std::nullopt;
    return Error(ErrorCode::kMismatch,
                 fmt::format("rank {} runs {} where rank {} runs {}: {} (here: rank {})", mine.source,
                             net::describe(mine), arrival.source, net::describe(arrival), wrong, mine.source),
                 arrival.source);
  }
  return std::nullopt;
}

std::string OperationRing::dump(size_t last) const {
  std::string text;
  const size_t first = records_.size() > last ? records_.size() - last : 0;
  for (size_t i = first; i < records_.size(); ++i) {
    const Record& record = records_[i];
    text += fmt::format("  {:10.6f} s  {:7}  {}  sent {} B, received {} B{}{}\n", to_seconds(record.begun),
                        to_string(record.state), net::describe(record.header), record.bytes_sent, record.bytes_received,
                        record.note.empty() ? "" : "  ", record.note);
  }
  return text;
}

}  // namespace virga::cluster
