#pragma once

#include "virga/collective/vector.h"

namespace virga::collective {

// Copies the root's bytes to every member. `data` has the same size on all; `root` is a world rank of the group.
Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data);

}  // namespace virga::collective
