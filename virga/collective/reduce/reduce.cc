// The operation reduce: what its request is.

#include "virga/collective/reduce/reduce.h"

namespace virga::collective {

Task<void> reduce(Comm& comm, Group group, Rank root, Vector in, Vector out, Reduction reduction, Choice choice) {
  require(group.contains(root), "reduce to rank {}, which is no member of the group", root);
  require(comm.rank() != root || (out.elements == in.elements && out.dtype == in.dtype),
          "reduce: the root's result has {} x {} where the vectors have {} x {}", out.elements, to_string(out.dtype),
          in.elements, to_string(in.dtype));
  Shape shape;
  shape.kind = OpKind::kReduce;
  shape.dtype = shape.wire = in.dtype;
  shape.elements = in.elements;
  shape.root = group.member(root);
  set_reduction(shape, reduction, group.size());
  return perform(comm, {std::move(group), std::move(shape), in, out}, choice);
}

}  // namespace virga::collective
