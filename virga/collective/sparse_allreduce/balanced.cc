// Balanced sparse allreduce: every member adds up a part of the vector and keeps as much of it as one member selects.
//
//   1  every member selects from each of n equal parts of residual + vector / n by itself: the top k_j of part j, where
//      k_j = density * S/n
//   2  it sends its selection of part j to member j, which adds all of them up
//   3  member j keeps the k_j largest sums; the others, and what rounding to the wire takes off those that it keeps, it
//      gives back to its own residual
//   4  allgather, direct, of what was kept
//
// Rounds 1 + 1; bytes of member i: once those of all parts but its own, and n-1 times p_i, where p_i =
// SparseFormat(S/n, k_i).payload_bytes(): about 2 (n-1)/n p, whatever the number of members. With an index as long as a
// value that is 4 (n-1)/n k of them, below the 6 (n-1)/n k of Ok-Topk: there the largest of the whole vector are
// selected by thresholds, so that sizes depend on the data, parts have to be evened out before they are sent, and both
// cost messages. Here every part gets the same share, and sizes depend on (S, k, n) only. Memory: three times p, S/n,
// the residual (S). Order of summation: member 0, 1, ..., n-1, from zero. Nothing is lost: for every element what comes
// out and all residuals are together what they and the vectors were before, rounded in fp32 at each addition. But it
// moves: what is not kept of part j stays with member j. A lost peer: all others, which wait for its messages; the
// residuals are then those of a step under way, which ErrorFeedback::restore_last takes back. Source: Li and Hoefler,
// "Near-optimal sparse allreduce for distributed deep learning", PPoPP 2022, with parts of fixed shares.

#include "virga/collective/exchange.h"
#include "virga/collective/sparse_allreduce/selection.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kScatter = 0, kGather = 1 };

// Messages are added up, the largest of the sums are found, what is left is given back.
size_t keep_bytes(const Shape& shape, const SparseParts& parts, int part) {
  return 4 * static_cast<size_t>(shape.members()) * parts.bytes(part) +
         6 * parts.ranges[static_cast<size_t>(part)].size() * size_of(shape.dtype);
}
size_t unpack_bytes(const Shape& shape, const SparseParts& parts) { return shape.bytes() + 4 * parts.bytes(); }

// The message about the sum of a part's messages.
void keep(codec::ErrorFeedback& feedback, const codec::SparseFormat& format, pattern::Range range,
          const std::vector<Vector>& messages, std::span<std::byte> kept) {
  std::vector<codec::SparsePayload> payloads;
  for (const Vector& message : messages) payloads.push_back(format.validate(message.span()));
  std::vector<float> sum(format.n());
  add_from_zero(payloads, sum);
  pack_largest(feedback, format, range.begin, sum, kept);
}

// Steps 2 and 3.
Task<void> scatter_and_keep(Operation& op, const Request& request, const SparseParts& parts, Vector out, Vector kept) {
  const int n = request.group.size(), me = request.me(op);
  const uint64_t chunk = chunk_number(request.phase + kScatter, 0, 0);
  const Scratch in(static_cast<size_t>(n) * parts.bytes(me), DType::kByte, request.out);
  std::vector<Vector> messages;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    messages.push_back(in.vector().part({i * parts.bytes(me), (i + 1) * parts.bytes(me)}));
  }
  messages[static_cast<size_t>(me)] = out.part(parts.message(me));
  std::vector<Task<void>> moves;
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n, from = (me - distance + n) % n;
    moves.push_back(exchange(op, chunk, request.group.rank(to), out.part(parts.message(to)), request.group.rank(from),
                             messages[static_cast<size_t>(from)]));
  }
  co_await when_all(std::move(moves), &op.scope());
  co_await op.work(keep_bytes(request.shape, parts, me), [&] {
    if (request.phantom() || parts.bytes(me) == 0) return;
    keep(request.selector->feedback, parts.format(me), parts.ranges[static_cast<size_t>(me)], messages, kept.span());
  });
}

// All are checked before the first is used.
void unpack(const SparseParts& parts, Vector messages, std::span<float> result) {
  std::vector<std::vector<codec::SparsePayload>> payloads(parts.ranges.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    const Vector message = messages.part(parts.message(static_cast<int>(i)));
    if (message.elements > 0) payloads[i].push_back(parts.formats[i].validate(message.span()));
  }
  for (size_t i = 0; i < payloads.size(); ++i) {
    add_from_zero(payloads[i], result.subspan(parts.ranges[i].begin, parts.ranges[i].size()));
  }
}

Task<void> run(Operation& op, Request request) {
  const SparseParts parts(request.shape);
  const Scratch selected(parts.bytes(), DType::kByte, request.out), kept(parts.bytes(), DType::kByte, request.out);
  co_await select_parts(op, request, parts, selected.vector());
  co_await scatter_and_keep(op, request, parts, selected.vector(), kept.vector().part(parts.message(request.me(op))));
  Request gather = request;
  gather.shape = byte_allgather(request.shape, parts.offsets);
  gather.phase = request.phase + kGather;
  gather.in = gather.out = kept.vector();
  co_await allgather_direct.run(op, std::move(gather));
  co_await op.work(unpack_bytes(request.shape, parts), [&] {
    if (!request.phantom()) unpack(parts, kept.vector(), request.out.floats());
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  const SparseParts parts(shape);
  charge_select(shape, ledger);
  ledger.phase();
  ledger.round();
  for (int member = 0; member < shape.members(); ++member) {
    for (int other = 0; other < shape.members(); ++other) {
      if (other != member) ledger.send(member, other, parts.bytes(other), parts.bytes(other) > 0 ? 1 : 0);
    }
    ledger.work(member, keep_bytes(shape, parts, member));
  }
  allgather_direct.charge(byte_allgather(shape, parts.offsets), ledger);
  ledger.phase();
  for (int member = 0; member < shape.members(); ++member) ledger.work(member, unpack_bytes(shape, parts));
}

}  // namespace

const Algorithm sparse_allreduce_balanced{OpKind::kSparseAllreduce, "balanced", run, charge};

}  // namespace virga::collective
