#include "virga/cluster/topology.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "virga/base/error.h"

namespace virga::cluster {

Topology::Topology(const std::vector<std::string>& host_identity) {
  require(!host_identity.empty(), "a topology needs at least one rank");
  std::map<std::string, int> number;
  for (size_t rank = 0; rank < host_identity.size(); ++rank) {
    const auto [entry, is_new] = number.emplace(host_identity[rank], static_cast<int>(ranks_of_.size()));
    if (is_new) ranks_of_.emplace_back();
    const int host = entry->second;
    host_of_.push_back(host);
    local_index_.push_back(static_cast<int>(ranks_of_[host].size()));
    ranks_of_[host].push_back(static_cast<Rank>(rank));
  }
  const auto smallest = std::min_element(ranks_of_.begin(), ranks_of_.end(),
                                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
  owners_ = static_cast<int>(smallest->size());
}

Group Topology::world() const {
  std::vector<Rank> ranks(host_of_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return Group(std::move(ranks));
}

Topology Topology::of(const Group& group) const {
  std::vector<std::string> hosts;
  for (Rank rank : group.ranks()) {
    require(rank < world_size(), "a group names rank {} of a job of {}", rank, world_size());
    hosts.push_back(std::to_string(host_of(rank)));
  }
  return Topology(hosts);
}

Group Topology::across_hosts(int local_index) const {
  require(local_index >= 0 && local_index < owners_, "local index {} does not exist on every host ({} do)", local_index,
          owners_);
  std::vector<Rank> ranks;
  for (const auto& host : ranks_of_) ranks.push_back(host[local_index]);
  return Group(std::move(ranks));
}

}  // namespace virga::cluster
