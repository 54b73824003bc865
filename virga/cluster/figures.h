#pragma once

namespace virga::cluster {

// A way that messages take, each direction.
struct LinkFigures {
  double latency_seconds;      // from the begin of a small message's send to its arrival
  double bytes_per_second;     // of payload
  double message_seconds = 0;  // for which every message holds the link up, whatever its size
  double segment_bytes = 0;    // a longer message comes in pieces and is put together in memory; 0: none is
  double burst_bytes = 0;      // pass at once where the link was idle for as long as they take: a shaper's token bucket

  bool operator==(const LinkFigures&) const = default;
};

// What a cluster's parts can do, as far as costs depend on it.
struct Figures {
  LinkFigures between_hosts;       // a host's one link
  LinkFigures inside_host;         // between two ranks of a host
  double memory_bytes_per_second;  // at which elements are reduced: bytes read and written

  bool operator==(const Figures&) const = default;
};

// 1 Gbit/s Ethernet, and UCX's shared memory: what choices assume where nobody has measured.
constexpr Figures kOrdinaryFigures{{100e-6, 118e6}, {5e-6, 8.5e9, 1.7e-6, 61440}, 16e9};

}  // namespace virga::cluster
