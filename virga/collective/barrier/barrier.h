#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Returns when every member of the group has called it.
Task<void> barrier(Comm& comm, Group group);

}  // namespace virga::collective
