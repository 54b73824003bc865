// The operation gather: what its request is.

#include "virga/collective/gather/gather.h"

namespace virga::collective {

Task<void> gather(Comm& comm, Group group, Rank root, Vector part, Vector all, std::vector<size_t> counts,
                  Choice choice) {
  require(group.contains(root), "gather to rank {}, which is no member of the group", root);
  Shape shape = parts_shape(OpKind::kGather, part, std::move(counts), group.member(comm.rank()), group.size());
  shape.root = group.member(root);
  if (comm.rank() == root) require_whole(shape, all);
  return perform(comm, {std::move(group), std::move(shape), part, all}, choice);
}

}  // namespace virga::collective
