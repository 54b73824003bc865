#pragma once

#include "virga/collective/sparse_allreduce/sparse_allreduce.h"

namespace virga::collective {

// The format of the messages about a whole vector.
codec::SparseFormat sparse_format(const Shape& shape);

// The first step of most sparse allreduces: writes the top k of residual + vector / divisor into `message` and keeps
// the rest. Nothing happens to phantom vectors.
Task<void> select(Operation& op, const Request& request, net::Buffer message);
void charge_select(const Shape& shape, Ledger& ledger);

}  // namespace virga::collective
