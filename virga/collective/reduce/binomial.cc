// Reduce up a binomial tree, in slices: the broadcast's tree backwards.
//
// A member adds the partial sums of its children to its own values, the one with the smallest subtree first, which has
// its own first, and sends what that comes to to its parent.
// Rounds floor(log2 n), as many edges as the farthest member is away from the root; bytes S (the root sends none, but
// receives ceil(log2 n) S); memory two slices a lane. Order of summation, where x[d] is the vector of the member at
// distance d behind the root: for each s = 1, 2, 4, ... in turn x[d] += x[d + s] for all multiples d of 2s where there
// is an x[d + s]; x[0] is the result. Halves are rounded at each addition. The root divides an average. A lost peer:
// its parent, and through it all above. Source: textbook; "minimum spanning tree" in Chan et al., "Collective
// communication: theory, practice, and experience", 2007.

#include "virga/collective/binomial.h"

#include <algorithm>

#include "virga/collective/algorithm.h"
#include "virga/collective/inputs.h"
#include "virga/pattern/ring.h"

namespace virga::collective {
namespace {

size_t finished_bytes(const Shape& shape, size_t bytes) {
  const bool copies = shape.members() == 1, divides = shape.divisor > 1;
  return (copies || divides ? 2 : 0) * bytes;
}

struct Slice {
  Operation& op;
  const Request& request;
  Vector own;
  size_t index;

  const Shape& shape() const { return request.shape; }
  int distance() const { return pattern::distance_behind(shape().root, request.me(op), shape().members()); }
  Rank rank_at(int where) const { return request.group.rank((shape().root + where) % shape().members()); }
  uint64_t chunk() const { return chunk_number(request.phase, index, 0); }
};

// sum = before + coming.
Task<void> add(Slice slice, Vector sum, Vector before, Vector coming) {
  return slice.op.work(reduced_bytes(2, sum.bytes()), [slice, sum, before, coming] {
    if (slice.own.phantom() || sum.phantom()) return;
    const std::span<const std::byte> inputs[] = {before.span(), coming.span()};
    kernel::reduce(slice.shape().reduce_op(), slice.shape().dtype, sum.span(), inputs);
  });
}

// The sum over the subtree, in `sum`, from this member's own values and its children's sums.
Task<void> add_up(Slice slice, std::vector<int> children, Vector sum) {
  const Scratch coming(slice.own.elements, slice.own);
  Vector before = slice.own;
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    co_await slice.op.receive(slice.rank_at(*child), slice.chunk(), coming.vector().buffer());
    co_await add(slice, sum, before, coming.vector());
    before = sum;
  }
}

Task<void> finish(Slice slice, Vector sum) {
  return slice.op.work(finished_bytes(slice.shape(), sum.bytes()), [slice, sum] {
    if (slice.own.phantom() || sum.phantom()) return;
    if (slice.shape().members() == 1 && sum.data != slice.own.data) std::ranges::copy(slice.own.span(), sum.data);
    if (slice.shape().divisor > 1) kernel::divide(slice.shape().dtype, sum.span(), slice.shape().divisor);
  });
}

Task<void> reduce_slice(Slice slice) {
  const pattern::BinomialTree tree{slice.shape().members()};
  const int distance = slice.distance();
  const std::vector<int> children = tree.children(distance);
  const size_t begin = slice.index * slice.shape().slice_elements(), elements = slice.own.elements;
  const Scratch memory(distance > 0 && !children.empty() ? elements : 0, slice.own);
  const Vector partial = children.empty() ? slice.own : memory.vector();
  const Vector sum = distance == 0 ? slice.request.out.part({begin, begin + elements}) : partial;
  co_await add_up(slice, children, sum);
  if (distance == 0) {
    co_await finish(slice, sum);
  } else {
    co_await slice.op.send(slice.rank_at(tree.parent(distance)), slice.chunk(), sum.buffer());
  }
}

Task<void> run(Operation& op, Request request) {
  co_await run_slices(op, request.in, request.shape.slice_elements(), [&](Vector own, size_t i) {
    const Slice slice{op, request, own, i};
    return reduce_slice(slice);
  });
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  const auto at = [&](int distance) { return (shape.root + distance) % n; };
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    const size_t bytes = length * size_of(shape.dtype);
    charge_tree(pattern::BinomialTree{n}, Towards::kRoot, count, ledger, [&](int parent, int child) {
      ledger.send(at(child), at(parent), bytes);
      ledger.work(at(parent), reduced_bytes(2, bytes));
    });
    ledger.round();
    ledger.work(shape.root, finished_bytes(shape, bytes));
  });
}

}  // namespace

const Algorithm reduce_binomial{OpKind::kReduce, "binomial", run, charge};

}  // namespace virga::collective
