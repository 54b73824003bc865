// The operation scatter: what its request is.

#include "virga/collective/scatter/scatter.h"

namespace virga::collective {

Task<void> scatter(Comm& comm, Group group, Rank root, Vector all, Vector part, std::vector<size_t> counts,
                   Choice choice) {
  require(group.contains(root), "scatter from rank {}, which is no member of the group", root);
  Shape shape = parts_shape(OpKind::kScatter, part, std::move(counts), group.member(comm.rank()), group.size());
  shape.root = group.member(root);
  if (comm.rank() == root) require_whole(shape, all);
  return perform(comm, {std::move(group), std::move(shape), all, part}, choice);
}

}  // namespace virga::collective
