#include "virga/cluster/group.h"

#include <algorithm>

#include "virga/base/error.h"

namespace virga::cluster {
namespace {

uint32_t hash_of(const std::vector<Rank>& ranks) {  // FNV-1a over the ranks
  uint32_t hash = 2166136261u;
  for (Rank rank : ranks) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((static_cast<uint32_t>(rank) >> shift) & 0xffu)) * 16777619u;
    }
  }
  return hash;
}

}  // namespace

Group::Group(std::vector<Rank> ranks) : ranks_(std::move(ranks)), hash_(hash_of(ranks_)) {
  require(!ranks_.empty(), "a group needs at least one rank");
  std::vector<Rank> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  require(sorted.front() >= 0, "a group can't contain rank {}", sorted.front());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  require(twice == sorted.end(), "a group can't contain a rank twice");
}

int Group::member(Rank rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

}  // namespace virga::cluster
