#pragma once

#include <functional>

#include "virga/collective/algorithm.h"

namespace virga::collective {

// The frame of every hierarchical allreduce, dense or sparse: dense where links are fast, `across` where they are slow.
// `across` gets the request of one owner's shard; its group has one member a host, in host order.
Task<void> hierarchical(Operation& op, Request request, std::function<Task<void>(Operation&, Request)> across);

// What that costs; `across` enters what it does with the shard that it is given.
void charge_hierarchical(const Shape& shape, Ledger& ledger, void (*across)(const Shape&, Ledger&));

// The part of the vector that a member owns after the reduce-scatter inside its host; empty for one that owns none.
pattern::Range owned_shard(const Shape& shape, int member);

}  // namespace virga::collective
