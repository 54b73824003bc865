#pragma once

#include "virga/collective/sparse_allreduce/sparse.h"

namespace virga::collective {

// How many elements this rank's residual has for a vector of `elements`: those of the shard that it owns after the
// reduce-scatter inside its host; 0 for a rank that owns none.
size_t hitopk_residual_elements(const cluster::Topology& topology, Rank rank, size_t elements);

// Hierarchical sparse allreduce over the whole job, in place: dense inside hosts, top-k across them; the same bits on
// all ranks. feedback has hitopk_residual_elements() elements.
Task<void> sparse_allreduce_hitopk(Comm& comm, FloatVector data, SparseOptions options, Selector& selector);

}  // namespace virga::collective
