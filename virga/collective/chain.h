#pragma once

#include "virga/collective/algorithm.h"
#include "virga/pattern/ring.h"

// What the members of a chain do with one slice, on its way to the root or away from it, and what that costs.
namespace virga::collective {

// Adds this member's own values to what comes from the member behind it and passes the sum on. The root's goes to
// request.out, where the slice begins at element `begin`, and is divided there, if an average was asked for.
Task<void> reduce_along(Operation& op, const Request& request, pattern::Chain chain, Vector own, size_t begin,
                        uint64_t chunk);

// Passes what comes from the member before this one, the root's own, on to the one behind it.
Task<void> broadcast_along(Operation& op, const Request& request, pattern::Chain chain, Vector slice, uint64_t chunk);

// The rounds of a slice of so many bytes, one for each edge, in the order in which it comes by.
void charge_reduce_along(const Shape& shape, int root, size_t bytes, Ledger& ledger);
void charge_broadcast_along(const Shape& shape, int root, size_t bytes, Ledger& ledger);

}  // namespace virga::collective
