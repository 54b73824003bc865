#pragma once

#include "virga/collective/vector.h"

namespace virga::collective {

// Sums the vectors of all members; member i < owners ends with the sum of shard i of `owners` (pattern::shard) in its
// place in `data`. The rest of `data` is unchanged. Vectors have the same size on all members.
Task<void> reduce_scatter(Comm& comm, Group group, FloatVector data);

// The same as a phase of a larger operation; 1 <= owners <= group size.
Task<void> reduce_scatter_direct(Operation& op, unsigned phase, Group group, int owners, FloatVector data);

}  // namespace virga::collective
