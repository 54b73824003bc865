#pragma once

#include "virga/collective/algorithm.h"

namespace virga::collective {

// Reduces the vectors of all members element by element; each member ends with the result of its part, in its place in
// `data`; the rest of `data` is unchanged. Vectors have the same size on all members. `counts` as in allgather. Throws
// kInvalidArgument for bytes, which can't be reduced, and for counts that don't fit.
Task<void> reduce_scatter(Comm& comm, Group group, Vector data, Reduction reduction = Reduction::kSum,
                          std::vector<size_t> counts = {}, Choice choice = {});

}  // namespace virga::collective
