#pragma once

#include <vector>

#include "virga/collective/vector.h"

namespace virga::collective {

// Member i begins with bytes[i] bytes at the sum of the earlier ones in `data` and ends with those of all members.
// `bytes` is the same list on all members, as long as the group; its sum is data.bytes. `layout`: a hash of what the
// bytes are (their type, their shape), where members must agree on that, too.
Task<void> allgatherv(Comm& comm, Group group, std::vector<size_t> bytes, net::Buffer data, uint64_t layout = 0);

// The same as a phase of a larger operation.
Task<void> allgatherv_direct(Operation& op, unsigned phase, Group group, std::vector<size_t> bytes, net::Buffer data);

}  // namespace virga::collective
