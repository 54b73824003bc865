#pragma once

#include "virga/cluster/comm.h"
#include "virga/collective/shape.h"

namespace virga::collective {

// Sends `out` to one rank while `in` comes from another (or the same), both numbered `chunk`. Where a vector is empty
// no message is sent: both sides know its size.
Task<void> exchange(cluster::Operation& op, uint64_t chunk, Rank to, Vector out, Rank from, Vector in);

// The same, but what comes in is reduced into `sum`. `room` is memory for it, at least as long: see
// Operation::receive_and_use.
Task<void> exchange_and_reduce(cluster::Operation& op, uint64_t chunk, Rank to, Vector out, Rank from, Vector sum,
                               Vector room, const Shape& shape);
}  // namespace virga::collective
