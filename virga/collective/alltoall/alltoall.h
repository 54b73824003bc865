#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Member i sends part j of its `in` to member j, which ends with the parts of all members in `out`, in their order.
// counts[i][j] are the elements that i sends to j, the same table on all members; empty: all parts are equal, and
// in.elements is a multiple of the group's size. `in` and `out` don't overlap. Throws kInvalidArgument before anything
// is sent for sizes that don't fit.
Task<void> alltoall(Comm& comm, Group group, Vector in, Vector out, std::vector<std::vector<size_t>> counts = {},
                    Choice choice = {});

// Where part i -> j lies in `in` of member i, and in `out` of member j.
pattern::Range alltoall_in(const Shape& shape, int from, int to);
pattern::Range alltoall_out(const Shape& shape, int from, int to);

}  // namespace virga::collective
