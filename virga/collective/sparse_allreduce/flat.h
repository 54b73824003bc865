#pragma once

#include "virga/collective/sparse_allreduce/sparse.h"

namespace virga::collective {

// Sparse allreduce over a group, in place: every member ends with the sum of what each selected of its residual +
// vector * scale; the same bits on all. feedback has data.elements elements.
Task<void> sparse_allreduce_flat(Comm& comm, Group group, FloatVector data, SparseOptions options, Selector& selector);

}  // namespace virga::collective
