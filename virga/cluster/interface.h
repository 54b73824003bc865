#pragma once

#include <string>

namespace virga::cluster {

// The name of the network interface by which this machine reaches `host` ("eth0"): where the transport between hosts
// should listen, and nowhere else. VIRGA_INTERFACE overrides it where a machine has several ways. Throws kUnavailable
// if the host can't be resolved or reached, kInvalidArgument if the named interface does not exist.
std::string interface_towards(const std::string& host);

}  // namespace virga::cluster
