#pragma once

#include <cstdint>
#include <vector>

#include "virga/base/ids.h"

namespace virga::cluster {

// An ordered set of world ranks that act together. Indexes into it are *members*, so that a rank of the world and a
// position in the group are never mixed up silently.
class Group {
 public:
  // Throws kInvalidArgument if a rank comes twice or is negative, or if the list is empty.
  explicit Group(std::vector<Rank> ranks);

  int size() const { return static_cast<int>(ranks_.size()); }
  Rank rank(int member) const { return ranks_[member]; }
  const std::vector<Rank>& ranks() const { return ranks_; }
  // Position of a world rank; -1 if it is not a member.
  int member(Rank rank) const;
  bool contains(Rank rank) const { return member(rank) >= 0; }
  // Identifies the member list on the wire.
  uint32_t hash() const { return hash_; }

 private:
  std::vector<Rank> ranks_;
  uint32_t hash_;
};

}  // namespace virga::cluster
