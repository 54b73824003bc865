// Sparse ring: partial sums grow as they travel, and turn dense when that is shorter.
//
//   1  every member selects from each of n equal parts of residual + vector / n by itself: the top k_j of part j, where
//      k_j = density * S/n
//   2  in n-1 steps every member sends a partial sum to the next member and adds its own selection to what comes from
//      the previous one; a partial sum of h members holds h k_j elements, zeros where their selections share one
//   3  ring allgather of the sums that the owners hold at last
//
// A message of h members about N elements takes q(h) = min(p(N, h k_j), N w) bytes, where p is that of SparseFormat and
// w the bytes of a value on the wire: whether it is sparse depends on (N, k_j, h) only. Rounds n-1 + n-1; bytes of a
// member: q(1), q(2), up to q(n-1) once each, and n-1 times q(n). That is 1.5 (n-1) p(S, k) while all are sparse, where
// flat.cc takes (n-1) p(S, k), but never more than 2 (n-1)/n times the vector as it travels. Memory: p(S, k), what
// comes out once more, two messages, two parts, the residual (S). Order of summation: part j in the order of members
// j+1, j+2, and so on up to j (mod n). Halves are rounded at each hop; what that takes off, the member gives back to
// its own residual. Nothing is lost: for every element what comes out and all residuals are together what they and the
// vectors were before, rounded in fp32 at each addition. A lost peer: its neighbours, the others through the epoch's
// first error; the residuals are then those of a step under way, which ErrorFeedback::restore_last takes back. Source:
// the ring of Patarasu and Yuan, JPDC 2009, with the switch of Renggli et al., "SparCML: high-performance sparse
// communication for machine learning", SC 2019.

#include "virga/pattern/ring.h"

#include <limits>

#include "virga/collective/exchange.h"
#include "virga/collective/sparse_allreduce/selection.h"
#include "virga/collective/wire.h"
#include "virga/kernel/elementwise.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kReduce = 0, kGather = 1 };

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What the partial sum of a part travels as when some members have added to it: nothing, if the part is empty. A dense
// one that holds NaN is poisoned.
class Partial {
 public:
  Partial(const codec::SparseFormat& each, int members)
      : sparse_(each.n(), std::min(each.n(), static_cast<uint64_t>(members) * each.k()), each.value_dtype()) {}

  const codec::SparseFormat& sparse() const { return sparse_; }
  bool dense() const { return dense_bytes() <= sparse_.payload_bytes(); }
  size_t bytes() const { return dense() ? dense_bytes() : sparse_.payload_bytes(); }

  void pack_dense(std::span<float> values, Vector message) const {
    if (wire() == DType::kFloat32) {
      std::ranges::copy(Vector(values).span(), message.data);
    } else {
      HalfWire(wire()).pack(dense_values(message), values);
    }
  }
  void unpack_dense(Vector message, std::span<float> values) const {
    if (wire() == DType::kFloat32) {
      std::ranges::copy(message.span(), Vector(values).data);
    } else {
      HalfWire(wire()).unpack(values, dense_values(message));
    }
  }

 private:
  DType wire() const { return sparse_.value_dtype(); }
  size_t dense_bytes() const { return sparse_.n() * size_of(wire()); }
  Vector dense_values(Vector message) const { return {message.data, sparse_.n(), wire()}; }

  codec::SparseFormat sparse_;
};

Partial partial(const SparseParts& parts, int part, int members) { return {parts.format(part), members}; }

// Read and written again and again: to be added up, selected from, rounded and packed.
size_t add_bytes(const Shape& shape, const SparseParts& parts, int part) {
  return 8 * parts.ranges[static_cast<size_t>(part)].size() * size_of(shape.dtype);
}

// The partial sum that came in, if any did, and this member's own selection.
std::vector<float> sum_of(const Partial& from, Vector message, const codec::SparsePayload& own) {
  std::vector<float> sum(from.sparse().n());
  if (message.elements > 0 && from.dense()) {
    from.unpack_dense(message, sum);
    own.add_to(sum);
    if (!own.finite()) sum[0] = kNaN;
    return sum;
  }
  std::vector<codec::SparsePayload> payloads;
  if (message.elements > 0) payloads.push_back(from.sparse().validate(message.span()));
  payloads.push_back(own);
  add_from_zero(payloads, sum);
  return sum;
}

// What rounding takes off goes to the residual, unless the message is poisoned.
void pack(codec::ErrorFeedback& feedback, const Partial& to, size_t begin, std::vector<float> sum, Vector message) {
  if (!to.dense()) return pack_largest(feedback, to.sparse(), begin, sum, message.span());
  const bool finite = kernel::all_finite(sum);
  std::vector<float> rounded = sum;
  kernel::round_to(to.sparse().value_dtype(), rounded);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] -= rounded[i];
  if (!finite || !feedback.give_back(codec::nonzero(sum, begin))) std::ranges::fill(rounded, kNaN);
  to.pack_dense(rounded, message);
}

struct Member {
  Operation& op;
  const Request& request;
  const SparseParts& parts;
  Vector selected;
  pattern::Ring ring;

  // `to` becomes the partial sum of `members`, the last of which is this one; `from` is that of the others.
  Task<void> add(int part, int members, Vector from, Vector to) const {
    return op.work(add_bytes(request.shape, parts, part), [this, part, members, from, to] {
      if (request.phantom() || to.elements == 0) return;
      const codec::SparsePayload own = parts.format(part).validate(selected.part(parts.message(part)).span());
      std::vector<float> sum = sum_of(partial(parts, part, std::max(members - 1, 1)), from, own);
      pack(request.selector->feedback, partial(parts, part, members), parts.ranges[static_cast<size_t>(part)].begin,
           std::move(sum), to);
    });
  }
  Scratch message(int part, int members) const {
    return {partial(parts, part, members).bytes(), DType::kByte, request.out};
  }
  // `own`: the message about the whole sum of this member's part.
  Task<void> reduce(Vector own) const {
    Scratch out = message(ring.reduce_send(0), 1);
    const Vector nothing;
    co_await add(ring.reduce_send(0), 1, nothing, ring.size == 1 ? own : out.vector());
    for (int step = 0; step + 1 < ring.size; ++step) {
      const int part = ring.reduce_receive(step);
      const Scratch in = message(part, step + 1);
      const uint64_t chunk = chunk_number(request.phase + kReduce, 0, static_cast<unsigned>(step));
      co_await exchange(op, chunk, request.group.rank(ring.next()), out.vector(), request.group.rank(ring.previous()),
                        in.vector());
      out = message(part, step + 2);
      co_await add(part, step + 2, in.vector(), step + 2 == ring.size ? own : out.vector());
    }
  }
};

// Where the messages about whole sums lie, one after the other.
std::vector<size_t> whole_offsets(const SparseParts& parts) {
  const int n = static_cast<int>(parts.ranges.size());
  std::vector<size_t> offsets = {0};
  for (int part = 0; part < n; ++part) {
    offsets.push_back(offsets.back() + partial(parts, part, n).bytes());
  }
  return offsets;
}

// All are checked before the first is used.
void unpack(const SparseParts& parts, const Shape& gather, Vector messages, std::span<float> result) {
  const int n = gather.members();
  std::vector<std::vector<codec::SparsePayload>> sparse(static_cast<size_t>(n));
  const auto is_dense = [&](int part) { return partial(parts, part, n).dense(); };
  for (int part = 0; part < n; ++part) {
    const Vector message = messages.part(gather.part(part));
    if (message.elements == 0 || is_dense(part)) continue;
    sparse[static_cast<size_t>(part)].push_back(partial(parts, part, n).sparse().validate(message.span()));
  }
  for (int part = 0; part < n; ++part) {
    const pattern::Range range = parts.ranges[static_cast<size_t>(part)];
    const std::span<float> values = result.subspan(range.begin, range.size());
    if (is_dense(part)) {
      partial(parts, part, n).unpack_dense(messages.part(gather.part(part)), values);
    } else {
      add_from_zero(sparse[static_cast<size_t>(part)], values);
    }
  }
}

size_t unpack_bytes(const Shape& shape) { return 3 * shape.bytes(); }

Task<void> run(Operation& op, Request request) {
  const SparseParts parts(request.shape);
  const Shape gather = byte_allgather(request.shape, whole_offsets(parts));
  const Scratch selected(parts.bytes(), DType::kByte, request.out), whole(gather.elements, DType::kByte, request.out);
  const Member member{op, request, parts, selected.vector(), {request.group.size(), request.me(op)}};
  co_await select_parts(op, request, parts, selected.vector());
  co_await member.reduce(whole.vector().part(gather.part(request.me(op))));
  Request exchange = request;
  exchange.shape = gather;
  exchange.phase = request.phase + kGather;
  exchange.in = exchange.out = whole.vector();
  co_await allgather_ring.run(op, std::move(exchange));
  co_await op.work(unpack_bytes(request.shape), [&] {
    if (!request.phantom()) unpack(parts, gather, whole.vector(), request.out.floats());
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  const SparseParts parts(shape);
  charge_select(shape, ledger);
  ledger.phase();
  for (int member = 0; member < n; ++member) {
    ledger.work(member, add_bytes(shape, parts, pattern::Ring{n, member}.reduce_send(0)));
  }
  for (int step = 0; step + 1 < n; ++step) {
    ledger.round();
    for (int member = 0; member < n; ++member) {
      const pattern::Ring ring{n, member};
      const int part = ring.reduce_send(step);
      const size_t bytes = partial(parts, part, step + 1).bytes();
      ledger.send(member, ring.next(), bytes, bytes > 0 ? 1 : 0);
      ledger.work(member, add_bytes(shape, parts, ring.reduce_receive(step)));
    }
  }
  allgather_ring.charge(byte_allgather(shape, whole_offsets(parts)), ledger);
  ledger.phase();
  for (int member = 0; member < n; ++member) ledger.work(member, unpack_bytes(shape));
}

}  // namespace

const Algorithm sparse_allreduce_ring{OpKind::kSparseAllreduce, "ring", run, charge};

}  // namespace virga::collective
