#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Reduces the vectors `in` of all members, element by element, into `out` of the root. `in` has the same size and dtype
// on all; `out` is used on the root only, where it has them, too, and may be `in`. `root` is a world rank of the group.
// Throws kInvalidArgument before anything is sent: for a root that is no member, for bytes, for an `out` that differs.
Task<void> reduce(Comm& comm, Group group, Rank root, Vector in, Vector out, Reduction reduction = Reduction::kSum,
                  Choice choice = {});

}  // namespace virga::collective
