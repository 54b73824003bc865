#pragma once

#include <string>
#include <vector>

#include "virga/cluster/group.h"

namespace virga::cluster {

// Which ranks share a host. Hosts are numbered by their lowest rank, so every rank numbers them alike.
class Topology {
 public:
  // host_identity[r] names the host of rank r; equal names are one host.
  explicit Topology(const std::vector<std::string>& host_identity);

  int world_size() const { return static_cast<int>(host_of_.size()); }
  int host_count() const { return static_cast<int>(ranks_of_.size()); }
  int host_of(Rank rank) const { return host_of_[rank]; }
  // Position of a rank among those of its host, in rank order.
  int local_index(Rank rank) const { return local_index_[rank]; }
  const std::vector<Rank>& ranks_of(int host) const { return ranks_of_[host]; }

  // How many ranks of each host own a shard in hierarchical collectives: as many as the smallest host has, so that the
  // owner of a shard exists on every host.
  int owners_per_host() const { return owners_; }

  Group world() const;
  // The same for the members of a group, told by their position in it. kInvalidArgument if it names a rank too high.
  Topology of(const Group& group) const;
  Group same_host(Rank rank) const { return Group(ranks_of_[host_of_[rank]]); }
  // The ranks with one local index, one a host, in host order. Only for local_index < owners_per_host().
  Group across_hosts(int local_index) const;

 private:
  std::vector<int> host_of_;
  std::vector<int> local_index_;
  std::vector<std::vector<Rank>> ranks_of_;
  int owners_;
};

}  // namespace virga::cluster
