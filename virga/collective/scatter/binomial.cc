// Scatter down a binomial tree: few rounds for short parts.
//
// A member receives the parts of its whole subtree from its parent, keeps its own and sends each child those of its
// subtree, the largest subtree first. The root sends from where the parts lie in its vector; a subtree that goes around
// the end of the group gets two messages for that (collective/part_tree.h).
// Rounds floor(log2 n), as many edges as the farthest member is away from the root; bytes sent: the parts of its
// children's subtrees; the root sends all but its own, in ceil(log2 n) messages or one more. Memory: of one that is
// neither root nor leaf the parts of its subtree. Not in slices, so only for 64 MiB in all. No arithmetic. A lost peer:
// those below it wait until the epoch fails or the deadline passes. Source: textbook; "minimum spanning tree" scatter
// in Chan et al., "Collective communication: theory, practice, and experience", 2007.

#include <algorithm>

#include "virga/collective/part_tree.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> keep_own(Operation& op, const Request& request, const PartTree& tree) {
  const Vector own = tree.own_part();
  return op.work(2 * own.bytes(), [&request, own] {
    if (!own.phantom() && !request.out.phantom()) std::ranges::copy(own.span(), request.out.data);
  });
}

Task<void> run(Operation& op, Request request) {
  const PartTree tree(request, request.me(op), request.in, request.out);
  std::vector<Task<void>> arrivals;
  for (const auto& [from, chunk, parts] : tree.with_parent()) {
    arrivals.push_back(op.receive(from, chunk, parts.buffer()));
  }
  co_await when_all(std::move(arrivals), &op.scope());
  if (tree.is_leaf()) co_return;
  const std::vector<PartTree::Message> departures = tree.with_children();
  const auto send = [&](size_t i) {
    return op.send(departures[i].peer, departures[i].chunk, departures[i].vector.buffer());
  };
  co_await when_both(run_lanes(departures.size(), kLanes, op.scope(), send), keep_own(op, request, tree), &op.scope());
}

void charge(const Shape& shape, Ledger& ledger) { charge_part_tree(shape, Towards::kLeaves, ledger); }

}  // namespace

const Algorithm scatter_binomial{OpKind::kScatter, "binomial", run, charge, fits_part_tree};

}  // namespace virga::collective
