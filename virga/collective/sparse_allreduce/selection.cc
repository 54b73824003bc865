// What sparse allreduces share: the selection, and the exchange of all selections.

#include "virga/collective/sparse_allreduce/selection.h"

#include <limits>

#include "virga/codec/entries.h"

namespace virga::collective {
namespace {

size_t select_bytes(const Shape& shape) { return 6 * shape.bytes(); }

// The exchange of the messages, as an allgather of bytes.
Shape exchange_of(const Shape& shape) {
  std::vector<size_t> offsets = {0};
  for (int i = 0; i < shape.members(); ++i) offsets.push_back(offsets.back() + sparse_format(shape).payload_bytes());
  return byte_allgather(shape, std::move(offsets));
}

// All are checked before the first is added: a corrupt one leaves nothing half-done.
void add_checked(const codec::SparseFormat& format, const std::vector<Vector>& messages, std::span<float> sum) {
  std::vector<codec::SparsePayload> payloads;
  for (const Vector& message : messages) payloads.push_back(format.validate(message.span()));
  add_from_zero(payloads, sum);
}

// Runs compress(feedback, scale), unless the vector is a phantom.
template <class Compress>
Task<void> select_by(Operation& op, const Request& request, Compress compress) {
  const Clock& clock = op.comm().loop().clock();
  return op.work(select_bytes(request.shape), [&clock, &request, compress] {
    if (request.phantom()) return;
    Selector& selector = *request.selector;
    selector.selected.begin = clock.now();
    compress(selector.feedback, 1.0f / static_cast<float>(request.shape.divisor));
    selector.selected.end = clock.now();
  });
}

size_t add_bytes(const Shape& shape, size_t messages) {
  return shape.bytes() + 4 * messages * sparse_format(shape).payload_bytes();
}

// So many entries: the lowest indices that have none get zeros.
codec::Entries with_zeros(const codec::Entries& entries, size_t size) {
  codec::Entries more;
  size_t missing = size - entries.size(), taken = 0;
  for (uint32_t index = 0; more.size() < size; ++index) {
    if (taken < entries.size() && entries.indices[taken] == index) {
      more.add(index, entries.values[taken++]);
    } else if (missing > 0) {
      more.add(index, 0);
      --missing;
    }
  }
  return more;
}

}  // namespace

codec::SparseFormat sparse_format(const Shape& shape) {
  return sparse_format(shape.elements, shape.density, shape.wire);
}

Task<void> select(Operation& op, const Request& request, net::Buffer message) {
  return select_by(op, request, [&request, message](codec::ErrorFeedback& feedback, float scale) {
    feedback.compress(request.in.floats(), scale, sparse_format(request.shape), {message.data, message.bytes});
  });
}

Task<void> select_parts(Operation& op, const Request& request, const SparseParts& parts, Vector messages) {
  return select_by(op, request, [&request, &parts, messages](codec::ErrorFeedback& feedback, float scale) {
    feedback.compress(request.in.floats(), scale, parts.formats, messages.span());
  });
}

SparseParts::SparseParts(const Shape& shape) : offsets{0} {
  for (int i = 0; i < shape.members(); ++i) {
    const pattern::Range range = pattern::shard(shape.elements, shape.members(), i);
    ranges.push_back(range);
    formats.push_back(sparse_format(range.size(), shape.density, shape.wire));
    offsets.push_back(offsets.back() + (range.size() > 0 ? formats.back().payload_bytes() : 0));
  }
}

Shape byte_allgather(const Shape& shape, std::vector<size_t> offsets) {
  Shape messages = shape;
  messages.kind = OpKind::kAllgather;
  messages.dtype = messages.wire = DType::kByte;
  messages.elements = offsets.back();
  messages.slice_bytes = std::max<size_t>(offsets.back(), 1);
  messages.offsets = std::move(offsets);
  return messages;
}

void add_from_zero(const std::vector<codec::SparsePayload>& payloads, std::span<float> sum) {
  std::fill(sum.begin(), sum.end(), 0.0f);
  bool finite = true;
  for (const codec::SparsePayload& payload : payloads) {
    payload.add_to(sum);
    finite = finite && payload.finite();
  }
  if (!finite && !sum.empty()) sum[0] = std::numeric_limits<float>::quiet_NaN();
}

void charge_select(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  for (int member = 0; member < shape.members(); ++member) ledger.work(member, select_bytes(shape));
}

void pack_largest(codec::ErrorFeedback& feedback, const codec::SparseFormat& format, size_t begin,
                  std::span<const float> sum, std::span<std::byte> message) {
  codec::Entries largest = codec::nonzero(sum);
  if (largest.size() < format.k()) largest = with_zeros(largest, format.k());
  std::optional<codec::Entries> rest = codec::keep_largest(largest, format.k(), format.value_dtype());
  if (!rest) return format.encode_poison(message);
  for (uint32_t& index : rest->indices) index += static_cast<uint32_t>(begin);
  if (!feedback.give_back(*rest)) return format.encode_poison(message);
  format.encode(largest.indices, largest.values, message);
}

Task<void> add_up(Operation& op, const Request& request, const std::vector<Vector>& messages) {
  return op.work(add_bytes(request.shape, messages.size()), [&request, &messages] {
    if (!request.phantom()) add_checked(sparse_format(request.shape), messages, request.out.floats());
  });
}

void charge_add_up(const Shape& shape, int messages, Ledger& ledger) {
  ledger.round();
  for (int member = 0; member < shape.members(); ++member) {
    ledger.work(member, add_bytes(shape, static_cast<size_t>(messages)));
  }
}

Task<void> exchange_selections(Operation& op, Request request, const Algorithm& allgather) {
  if (request.shape.elements == 0) co_return;
  Request exchange = request;
  exchange.shape = exchange_of(request.shape);
  const Scratch memory(exchange.shape.elements, DType::kByte, request.out);
  exchange.in = exchange.out = memory.vector();
  std::vector<Vector> messages;
  for (int i = 0; i < request.group.size(); ++i) messages.push_back(memory.vector().part(exchange.shape.part(i)));
  co_await select(op, request, messages[static_cast<size_t>(request.me(op))].buffer());
  co_await allgather.run(op, exchange);
  co_await add_up(op, request, messages);
}

void charge_exchange_selections(const Shape& shape, Ledger& ledger, const Algorithm& allgather) {
  if (shape.elements == 0) return;
  charge_select(shape, ledger);
  allgather.charge(exchange_of(shape), ledger);
  charge_add_up(shape, shape.members(), ledger);
}

}  // namespace virga::collective
