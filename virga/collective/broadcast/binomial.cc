// Broadcast down a binomial tree, in slices.
//
// A member passes each slice that comes from its parent to its children, the one with the largest subtree first.
// Rounds floor(log2 n); bytes S for each child, of which the root has ceil(log2 n); memory none. A lost peer: those
// below it wait until the epoch fails or the deadline passes. Source: textbook; "minimum spanning tree" in Chan et al.,
// "Collective communication: theory, practice, and experience", 2007.

#include "virga/collective/algorithm.h"
#include "virga/pattern/ring.h"
#include "virga/pattern/tree.h"

namespace virga::collective {
namespace {

Task<void> pass_slice(Operation& op, const Request& request, Vector slice, uint64_t chunk) {
  const int size = request.group.size(), root = request.shape.root;
  const int distance = pattern::distance_behind(root, request.me(op), size);
  const pattern::BinomialTree tree{size};
  const auto rank_at = [&](int where) { return request.group.rank((root + where) % size); };
  if (distance > 0) co_await op.receive(rank_at(tree.parent(distance)), chunk, slice.buffer());
  for (int child : tree.children(distance)) co_await op.send(rank_at(child), chunk, slice.buffer());
}

Task<void> run(Operation& op, Request request) {
  co_await run_slices(op, request.out, request.shape.slice_elements(), [&](Vector slice, size_t i) {
    return pass_slice(op, request, slice, chunk_number(request.phase, i, 0));
  });
}

// Round r: those that have it already send to the child that is r-th from them.
void charge(const Shape& shape, Ledger& ledger) {
  const int members = shape.members();
  const pattern::BinomialTree tree{members};
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    ledger.slice(count);
    for (int step = 1 << tree.depth() >> 1; step > 0; step /= 2) {
      ledger.round();
      for (int parent = 0; parent + step < members; parent += 2 * step) {
        ledger.send((shape.root + parent) % members, (shape.root + parent + step) % members,
                    length * size_of(shape.dtype));
      }
    }
  });
}

}  // namespace

const Algorithm broadcast_binomial{OpKind::kBroadcast, "binomial", run, charge};

}  // namespace virga::collective
