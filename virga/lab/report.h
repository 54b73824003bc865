#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "virga/lab/crew.h"
#include "virga/lab/network.h"

namespace virga::lab {

struct HostReport {
  std::string name;
  std::string address;
  Traffic traffic;  // read after the last rank has ended
};

// What a run in a lab came to.
struct Report {
  Arguments command;
  std::uint64_t rate_bits_per_second = 0;
  int ranks_per_host = 0;
  std::vector<HostReport> hosts;
  CrewResult result;  // result.ranks[r] ran on host r / ranks_per_host
};

// The report as JSON text: {"command": [...], "rate_bits_per_second", "seconds", "status",
//  "hosts": [{"host", "name", "address", "bytes_sent", "bytes_received", "drops_sending",
//  "drops_receiving"}], "ranks": [{"rank", "host", "exit_status", "signal"}]}; "signal" is null
//  where the rank exited by itself.
std::string to_json(const Report& report);

// Writes a file in one go: readers see the old one or the whole new one. Throws kUnavailable.
void write_atomically(const std::string& path, const std::string& content);

// Throws kUnavailable if write_atomically() would: better before a long run than after it.
void require_writable(const std::string& path);

}  // namespace virga::lab
