// Gather up a binomial tree: few rounds for short parts.
//
// A member receives from all its children at once, each the parts of its whole subtree, and sends them on with its own
// to its parent. On the root everything lands where it belongs in the result; a subtree that goes around the end of the
// group comes in two messages for that (collective/part_tree.h).
// Rounds floor(log2 n), as many edges as the farthest member is away from the root; bytes sent: the parts of its
// subtree; the root receives all but its own, in ceil(log2 n) messages or one more. Memory: of one that is neither root
// nor leaf the parts of its subtree. Not in slices, so only for 64 MiB in all. No arithmetic. A lost peer: its parent,
// and through it all above. Source: textbook; "minimum spanning tree" gather in Chan et al., "Collective communication:
// theory, practice, and experience", 2007.

#include <algorithm>

#include "virga/collective/part_tree.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> copy_own(Operation& op, const Request& request, const PartTree& tree) {
  const Vector own = tree.own_part();
  return op.work(2 * own.bytes(), [&request, own] {
    if (!own.phantom() && !request.in.phantom()) std::ranges::copy(request.in.span(), own.data);
  });
}

Task<void> run(Operation& op, Request request) {
  const PartTree tree(request, request.me(op), request.out, request.in);
  std::vector<Task<void>> arrivals, departures;
  if (!tree.is_leaf()) arrivals.push_back(copy_own(op, request, tree));
  for (const auto& [from, chunk, parts] : tree.with_children()) {
    arrivals.push_back(op.receive(from, chunk, parts.buffer()));
  }
  co_await when_all(std::move(arrivals), &op.scope());
  for (const auto& [to, chunk, parts] : tree.with_parent()) departures.push_back(op.send(to, chunk, parts.buffer()));
  co_await when_all(std::move(departures), &op.scope());
}

void charge(const Shape& shape, Ledger& ledger) { charge_part_tree(shape, Towards::kRoot, ledger); }

}  // namespace

const Algorithm gather_binomial{OpKind::kGather, "binomial", run, charge, fits_part_tree};

}  // namespace virga::collective
