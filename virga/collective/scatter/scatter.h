#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Every member ends with its part of the root's `all` in `part`. `all` is used on the root only, and unchanged.
// `counts` as in gather. `root` is a world rank of the group. Throws kInvalidArgument before anything is sent: for a
// root that is no member, for sizes that don't fit.
Task<void> scatter(Comm& comm, Group group, Rank root, Vector all, Vector part, std::vector<size_t> counts = {},
                   Choice choice = {});

}  // namespace virga::collective
