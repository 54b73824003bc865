#pragma once

#include "virga/collective/vector.h"

namespace virga::collective {

// Member i begins with shard i of `data` (pattern::shard over the group) and ends with all of them.
Task<void> allgather(Comm& comm, Group group, FloatVector data);

// The same as a phase of a larger operation, where only the first `owners` members own a shard.
Task<void> allgather_direct(Operation& op, unsigned phase, Group group, int owners, FloatVector data);

}  // namespace virga::collective
