#pragma once

#include "virga/cluster/comm.h"
#include "virga/collective/vector.h"

namespace virga::collective {

// Sends `out` to one rank while `in` comes from another (or the same), both numbered `chunk`. Where a vector is empty
// no message is sent: both sides know its size.
Task<void> exchange(cluster::Operation& op, uint64_t chunk, Rank to, Vector out, Rank from, Vector in);

}  // namespace virga::collective
