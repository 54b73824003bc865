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

// What some select from: a part of the vector for each member (pattern::shard), each by itself and at the density of
// the whole. Messages follow one another; an empty part has none.
struct SparseParts {
  explicit SparseParts(const Shape& shape);

  size_t bytes() const { return offsets.back(); }
  size_t bytes(int part) const { return message(part).size(); }
  pattern::Range message(int part) const {
    return {offsets[static_cast<size_t>(part)], offsets[static_cast<size_t>(part) + 1]};
  }
  const codec::SparseFormat& format(int part) const { return formats[static_cast<size_t>(part)]; }

  std::vector<pattern::Range> ranges;  // of elements
  std::vector<codec::SparseFormat> formats;
  std::vector<size_t> offsets;  // where each message begins, and where the last one ends
};
// As select(): the message of each part.
Task<void> select_parts(Operation& op, const Request& request, const SparseParts& parts, Vector messages);

// An allgather of bytes, of which every member has those between its offset and the next one.
Shape byte_allgather(const Shape& shape, std::vector<size_t> offsets);

// sum = all payloads, added from zero in their order; NaN in front if one is poisoned.
void add_from_zero(const std::vector<codec::SparsePayload>& payloads, std::span<float> sum);

// The message about the format.k() largest of a part's sum; the part begins at `begin`. Gives back what that leaves
// out, and what rounding takes off. Where a sum is NaN or Inf, here or in the residual, the message is poisoned and
// nothing is given back.
void pack_largest(codec::ErrorFeedback& feedback, const codec::SparseFormat& format, size_t begin,
                  std::span<const float> sum, std::span<std::byte> message);

// A whole flat sparse allreduce: select, exchange what was selected by an allgather of bytes, add it up from zero in
// the order of members.
Task<void> exchange_selections(Operation& op, Request request, const Algorithm& allgather);
void charge_exchange_selections(const Shape& shape, Ledger& ledger, const Algorithm& allgather);

}  // namespace virga::collective
