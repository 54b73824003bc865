#pragma once

namespace virga::cluster {

// A way that messages take, each direction.
struct LinkFigures {
  double latency_seconds;      // from the begin of a small message's send to its arrival
  double bytes_per_second;     // of payload, in long messages
  double message_seconds = 0;  // for which every message holds the link up, whatever its size

  bool operator==(const LinkFigures&) const = default;
};

// What a cluster's parts can do, as far as costs depend on it.
struct Figures {
  LinkFigures between_hosts;       // a host's one link
  LinkFigures inside_host;         // between two ranks of a host
  double memory_bytes_per_second;  // at which elements are reduced: bytes read and written

  bool operator==(const Figures&) const = default;
};

// 1 Gbit/s Ethernet: what choices assume where nobody has measured.
constexpr Figures kOrdinaryFigures{{100e-6, 118e6}, {10e-6, 4e9}, 8e9};

}  // namespace virga::cluster
