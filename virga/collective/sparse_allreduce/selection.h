#pragma once

#include "virga/collective/sparse_allreduce/sparse_allreduce.h"

namespace virga::collective {

// The format of the messages about a whole vector.
codec::SparseFormat sparse_format(const Shape& shape);

// The first step of most sparse allreduces: writes the top k of residual + vector / divisor into `message` and keeps
// the rest. Nothing happens to phantom vectors.
Task<void> select(Operation& op, const Request& request, net::Buffer message);
void charge_select(const Shape& shape, Ledger& ledger);

// The last step of some: the result becomes the sum of messages, added from zero in their order, or NaN in front if one
// is poisoned. `messages` must live until then.
Task<void> add_up(Operation& op, const Request& request, const std::vector<Vector>& messages);
void charge_add_up(const Shape& shape, int messages, Ledger& ledger);

// A whole flat sparse allreduce: select, exchange what was selected by an allgather of bytes, add it up from zero in
// the order of members.
Task<void> exchange_selections(Operation& op, Request request, const Algorithm& allgather);
void charge_exchange_selections(const Shape& shape, Ledger& ledger, const Algorithm& allgather);

}  // namespace virga::collective
