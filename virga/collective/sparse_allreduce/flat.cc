// Flat top-k: every member selects, all exchange what they selected and add it up.
//
// Rounds 1; bytes sent (n-1) p per member, where p = SparseFormat(S, k).payload_bytes(): grows with the number of
// members, and n ranks of a host share its link. Memory n p and the residual (S). Order of summation: member 0, 1, ...,
// n-1, from zero. A lost peer: all that wait for its message fail, the others through the epoch's first error; the
// residual then holds what it held after the selection. Source: top-k SGD with error feedback, Stich et al. 2018;
// "NaiveAG" in Shi et al., MLSys 2021.

#include <limits>

#include "virga/collective/sparse_allreduce/selection.h"

namespace virga::collective {
namespace {

// The exchange of the messages, as an allgather of bytes.
Shape exchange_of(const Shape& shape) {
  Shape messages = shape;
  const size_t each = sparse_format(shape).payload_bytes();
  messages.kind = OpKind::kAllgather;
  messages.dtype = messages.wire = DType::kByte;
  messages.elements = each * static_cast<size_t>(shape.members());
  messages.slice_bytes = std::max<size_t>(each, 1);
  return messages;
}

// All are checked before the first is added: a corrupt one leaves nothing half-done.
void add_up(const codec::SparseFormat& format, const std::vector<Vector>& messages, std::span<float> sum) {
  std::vector<codec::SparsePayload> payloads;
  for (const Vector& message : messages) payloads.push_back(format.validate(message.span()));
  std::fill(sum.begin(), sum.end(), 0.0f);
  bool finite = true;
  for (const codec::SparsePayload& payload : payloads) {
    payload.add_to(sum);
    finite = finite && payload.finite();
  }
  if (!finite && !sum.empty()) sum[0] = std::numeric_limits<float>::quiet_NaN();
}

size_t add_bytes(const Shape& shape) { return shape.bytes() + 4 * exchange_of(shape).elements; }

Task<void> run(Operation& op, Request request) {
  if (request.shape.elements == 0) co_return;
  Request exchange = request;
  exchange.shape = exchange_of(request.shape);
  const Scratch memory(exchange.shape.elements, DType::kByte, request.out);
  exchange.in = exchange.out = memory.vector();
  std::vector<Vector> messages;
  for (int i = 0; i < request.group.size(); ++i) messages.push_back(memory.vector().part(exchange.shape.part(i)));
  co_await select(op, request, messages[static_cast<size_t>(request.me(op))].buffer());
  co_await allgather_direct.run(op, exchange);
  co_await op.work(add_bytes(request.shape), [&] {
    if (!request.phantom()) add_up(sparse_format(request.shape), messages, request.out.floats());
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  if (shape.elements == 0) return;
  charge_select(shape, ledger);
  allgather_direct.charge(exchange_of(shape), ledger);
  ledger.round();
  for (int member = 0; member < shape.members(); ++member) ledger.work(member, add_bytes(shape));
}

}  // namespace

const Algorithm sparse_allreduce_flat{OpKind::kSparseAllreduce, "flat", run, charge};

}  // namespace virga::collective
