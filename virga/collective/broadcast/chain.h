#pragma once

#include "virga/collective/vector.h"

namespace virga::collective {

// Copies the root's bytes to every member. `data` has the same size on all; `root` is a world rank of the group.
// `layout`: a hash of what the bytes are (their type, their shape), where members must agree on that, too.
Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data, uint64_t layout = 0);

}  // namespace virga::collective
