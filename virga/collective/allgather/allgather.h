#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Member i begins with its part of `data` and ends with all parts, in place. `counts` are the elements of each member's
// part, in order, the same list on all members; empty: shards of equal size (pattern::shard). Throws kInvalidArgument
// if they are not one a member or don't add up to data.elements.
Task<void> allgather(Comm& comm, Group group, Vector data, std::vector<size_t> counts = {}, Choice choice = {});

}  // namespace virga::collective
