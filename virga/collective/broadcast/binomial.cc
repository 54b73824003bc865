// Broadcast down a binomial tree, in slices.
//
// A member passes each slice that comes from its parent to its children, the one with the largest subtree first.
// Rounds ceil(log2 n); bytes S for each child, of which the root has ceil(log2 n); memory none. A lost peer: those
// below it wait until the epoch fails or the deadline passes. Source: textbook; "minimum spanning tree" in Chan et al.,
// "Collective communication: theory, practice, and experience", 2007.

#include "virga/collective/broadcast/broadcast.h"
#include "virga/pattern/ring.h"
#include "virga/pattern/tree.h"

namespace virga::collective {
namespace {

Task<void> pass_slice(Operation& op, Group group, int root, int distance, net::Buffer slice, uint64_t chunk) {
  const pattern::BinomialTree tree{group.size()};
  const auto rank_at = [&](int where) { return group.rank((root + where) % group.size()); };
  if (distance > 0) co_await op.receive(rank_at(tree.parent(distance)), chunk, slice);
  for (int child : tree.children(distance)) co_await op.send(rank_at(child), chunk, slice);
}

Task<void> run(Operation& op, Group group, Rank root, net::Buffer data) {
  const int first = group.member(root);
  const int distance = pattern::distance_behind(first, group.member(op.comm().rank()), group.size());
  const auto lane = [&](size_t i) {
    const pattern::Range range = pattern::slice(data.bytes, i, kBroadcastSliceBytes);
    return pass_slice(op, group, first, distance, data.part(range.begin, range.size()), chunk_number(0, i, 0));
  };
  co_await run_lanes(pattern::slice_count(data.bytes, kBroadcastSliceBytes), kLanes, op.scope(), lane);
}

// Round r: those that have it already send to the child that is r-th from them.
void charge(size_t bytes, int members, int root, Ledger& ledger) {
  const pattern::BinomialTree tree{members};
  for_equal_slices(bytes, kBroadcastSliceBytes, [&](size_t length, size_t count) {
    ledger.slice(count);
    for (int step = 1 << tree.depth() >> 1; step > 0; step /= 2) {
      ledger.round();
      for (int parent = 0; parent + step < members; parent += 2 * step) {
        ledger.send((root + parent) % members, (root + parent + step) % members, length);
      }
    }
  });
}

}  // namespace

const BroadcastAlgorithm broadcast_binomial{"binomial", run, charge};

}  // namespace virga::collective
