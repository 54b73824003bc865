#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Copies the root's vector to every member, in place. It has the same size on all; `root` is a world rank of the group.
// Throws kInvalidArgument before anything is sent if it is none.
Task<void> broadcast(Comm& comm, Group group, Rank root, Vector data, Choice choice = {});

}  // namespace virga::collective
