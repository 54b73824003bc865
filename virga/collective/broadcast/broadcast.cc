// The operation broadcast: what its request is.

#include "virga/collective/broadcast/broadcast.h"

namespace virga::collective {

Task<void> broadcast(Comm& comm, Group group, Rank root, Vector data, Choice choice) {
  require(group.contains(root), "broadcast from rank {}, which is no member of the group", root);
  Shape shape;
  shape.kind = OpKind::kBroadcast;
  shape.dtype = shape.wire = data.dtype;
  shape.elements = data.elements;
  shape.root = group.member(root);
  return perform(comm, {std::move(group), std::move(shape), data, data}, choice);
}

}  // namespace virga::collective
