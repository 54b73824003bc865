#pragma once

#include <string>
#include <vector>

#include "virga/runtime/clock.h"

namespace virga::cluster {

// A numeric IP address with a port, resolved from a name.
struct Address {
  std::string ip;  // "10.0.0.1", "fe80::1"
  int port = 0;
  bool ipv6 = false;
  bool loopback = false;

  // "10.0.0.1:80", "[::1]:80"
  std::string text() const;
};

// All addresses of a host, in the system's order of preference. Throws kUnavailable.
std::vector<Address> resolve(const std::string& host, int port);

// Tries a TCP connection. Empty if something accepted it, else why not.
std::string try_connect(const Address& address, Duration timeout);

// The numeric address of this machine from which packets to `address` would leave; empty if none would. Sends nothing.
std::string source_ip(const Address& address);

// The name of this machine's interface that has a numeric address; empty if none has.
std::string interface_with(const std::string& ip);

// Whether a server could be bound there at this moment: 0 or the system's error number.
int try_bind(const Address& address);

}  // namespace virga::cluster
