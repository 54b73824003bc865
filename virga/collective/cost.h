#pragma once

#include <cstdint>

// What operations cost, by formulas that stand beside the algorithms; tests hold the transport's counters to them.
namespace virga::collective {

// What one member sends in an operation: payload, and the messages that it is in.
struct Sent {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  bool operator==(const Sent&) const = default;
};

// A link of a host, each way.
struct LinkFigures {
  double latency_seconds;  // from the begin of a small message's send to its arrival
  double bytes_per_second;

  double seconds(double bytes) const { return latency_seconds + bytes / bytes_per_second; }
};

// 1 Gbit/s Ethernet: what choices assume where nobody has measured.
constexpr LinkFigures kOrdinaryLink{100e-6, 125e6};

}  // namespace virga::collective
