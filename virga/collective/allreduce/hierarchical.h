#pragma once

#include "virga/collective/allreduce/ring.h"

namespace virga::collective {

// Allreduce over the whole job that uses the fast links inside hosts: in place, scale * the sum of all ranks' vectors,
// the same bits on all. The wire dtype is what travels between hosts; inside a host it is always fp32.
Task<void> allreduce_hierarchical(Comm& comm, FloatVector data, AllreduceOptions options);

}  // namespace virga::collective
