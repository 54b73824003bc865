#pragma once

#include "virga/collective/sparse_allreduce/sparse.h"

namespace virga::collective {

// The part of a vector of `elements` that this rank's residual stands for: the shard that it owns after the
// reduce-scatter inside its host; empty for a rank that owns none.
pattern::Range hitopk_residual_range(const cluster::Topology& topology, Rank rank, size_t elements);

// Hierarchical sparse allreduce over the whole job, in place: dense inside hosts, top-k across them; the same bits on
// all ranks. feedback has as many elements as hitopk_residual_range().
Task<void> sparse_allreduce_hitopk(Comm& comm, FloatVector data, SparseOptions options, Selector& selector);

}  // namespace virga::collective
