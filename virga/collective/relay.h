#pragma once

#include "virga/collective/shape.h"

namespace virga::collective {

// Who handles the part of member `owner` on a host: on its own host the owner itself, on every other one a relay, for
// which the members of a host take turns by the owner's place on its host. So a part passes between two hosts only once
// and only between two members, whatever the hosts' sizes.
inline int handler(const cluster::Topology& layout, int host, int owner) {
  if (layout.host_of(owner) == host) return owner;
  const std::vector<Rank>& members = layout.ranks_of(host);
  return members[static_cast<size_t>(layout.local_index(owner)) % members.size()];
}

}  // namespace virga::collective
