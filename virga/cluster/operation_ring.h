#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "virga/base/error.h"
#include "virga/net/header.h"
#include "virga/runtime/clock.h"

namespace virga::cluster {

// The last operations of this rank, running and ended. Every message that arrives is checked against it, also one that
// comes after its operation has ended: ranks that disagree get an error instead of a hang or a wrong sum. It is also
// what a deadline or SIGUSR1 dumps.
class OperationRing {
 public:
  explicit OperationRing(size_t capacity = 4096) : capacity_(capacity) {}

  enum class State { kRunning, kDone, kFailed };
  struct Record {
    net::Header header;  // as this rank sends it; `source` is this rank
    State state = State::kRunning;
    Time begun{0};
    Time ended{0};
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    std::string note;  // the error, once it has failed
  };

  // The record stays valid while the operation runs: the ring grows past its capacity rather than drop a running one.
  Record& begin(const net::Header& header, Time now);
  void end(Record& record, State state, Time now, std::string note = {});

  // An error if the message contradicts what this rank does or did under that operation number. A message for an
  // operation that has not begun here, or that the ring has forgotten, can't be judged: nullopt.
  std::optional<Error> check(const net::Header& arrival) const;

  // One line an operation, oldest first; at most `last` of them.
  std::string dump(size_t last = 64) const;

 private:
  size_t capacity_;
  std::deque<Record> records_;
};

}  // namespace virga::cluster
