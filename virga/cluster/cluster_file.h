#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "virga/cluster/figures.h"

namespace virga::cluster {

// What a cluster file says: how many ranks each host has, and what the parts can do. docs/cluster-file.md has the keys.
struct ClusterFile {
  std::vector<int> ranks_per_host;  // one entry a host, each at least 1
  Figures figures;

  bool operator==(const ClusterFile&) const = default;
};

// Reads a file of TOML. Whatever is wrong with it is an Error (kInvalidArgument) that begins with "PATH:LINE:COLUMN: ";
// with "PATH:LINE: " for the line that holds one dot too many (of 1000); or with "PATH: " for a file that can't be read
// or has more than 1 MiB. Rates come out finite and above 0, seconds finite and not below 0, ranks 1 to 1,000,000 in
// all.
ClusterFile read_cluster_file(const std::string& path);

// The same for a text at hand; messages call it `name`.
ClusterFile parse_cluster_file(std::string_view text, std::string_view name);

// The text from which parse_cluster_file() makes the same, every double to the bit. What no cluster file can say is an
// Error, as in reading.
std::string write_cluster_file(const ClusterFile& cluster);

}  // namespace virga::cluster
