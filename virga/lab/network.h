#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "virga/lab/namespace.h"

namespace virga::lab {

// "200mbit" -> 200'000'000 bits per second, as `tc` has it: a number, then bit, kbit, mbit or gbit
// (powers of 1000). From 1 kbit to 100 gbit; anything else throws kInvalidArgument.
std::uint64_t parse_rate(std::string_view text);

// What went through the network device of a host since it was made, link-layer headers included.
struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t drops_sending = 0;    // packets that overflowed the queue from the host to the switch
  std::uint64_t drops_receiving = 0;  // and the queue from the switch to the host
};

// A switch with one full-duplex link to each machine. Both directions of a link are shaped by a token bucket (tbf) that
// lets one packet through at once; the longest are 131 us of its rate, 4 to 64 KiB. What a host sends is shaped at its
// own device e0, with at most 20 ms of queue; what it receives at its port of the switch, with at most 100 ms. So three
// hosts that send to one share that one's rate, as on a real switch. No latency is added. TCP's goodput is about 96 %
// of the rate.
class Switch {
 public:
  // Joins machine i by device e0 with address(i). The machines must outlive nothing: links end with
  // either side.
  Switch(const std::vector<Machine>& machines, std::uint64_t rate_bits_per_second);

  static std::string address(int host);  // 10.91.0.1, 10.91.0.2, ...

  // The link of a host goes down, as if the cable were pulled out of the switch; or up again.
  void set_link(int host, bool up);

  Traffic traffic(int host) const;

 private:
  const std::vector<Machine>& machines_;
  Namespaces network_;
};

}  // namespace virga::lab
