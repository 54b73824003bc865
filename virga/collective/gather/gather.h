#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// The root ends with the parts of all members in `all`, in their order. `all` is used on the root only. `counts` are
// the elements of each member's part, the same list on all; empty: all parts are as long as this one. `root` is a world
// rank of the group. Throws kInvalidArgument before anything is sent: for a root that is no member, for sizes that
// don't fit.
Task<void> gather(Comm& comm, Group group, Rank root, Vector part, Vector all, std::vector<size_t> counts = {},
                  Choice choice = {});

}  // namespace virga::collective
