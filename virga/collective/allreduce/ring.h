#pragma once

#include "virga/collective/vector.h"

namespace virga::collective {

// How an allreduce sums.
struct AllreduceOptions {
  AllreduceOptions() = default;
  AllreduceOptions(float scale, DType wire) : scale(scale), wire(wire) {}

  float scale = 1.0f;            // the result is scale * sum: 1 / world size for a mean
  DType wire = DType::kFloat32;  // kFloat32 or kFloat16: what travels between members of the ring
};

// In place: every member ends with scale * the sum of all members' vectors, the same bits on all.
Task<void> allreduce_ring(Comm& comm, Group group, FloatVector data, AllreduceOptions options);

// The same as a phase of a larger operation; uses `phase` and `phase` + 1.
Task<void> ring_phase(Operation& op, unsigned phase, Group group, FloatVector data, AllreduceOptions options);

// Throws kInvalidArgument unless the options are ones that an allreduce can follow.
void check(const AllreduceOptions& options);

// For OpDescriptor::options: equal only if the options are.
uint64_t fingerprint(const AllreduceOptions& options);

}  // namespace virga::collective
