#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Every member sends `in` to its neighbours: what gossip is made of. graph[i] are the members (positions in the group)
// that member i sends to: each at most once, not itself; the same graph on all. `out` has room for one vector from each
// member that sends to this one, in the order of their positions. Throws kInvalidArgument before anything is sent if
// the graph or the sizes don't fit.
Task<void> neighbor_exchange(Comm& comm, Group group, Vector in, Vector out, std::vector<std::vector<int>> graph,
                             Choice choice = {});

// The members that send to this one, in order.
std::vector<int> neighbors_before(const Shape& shape, int member);

}  // namespace virga::collective
