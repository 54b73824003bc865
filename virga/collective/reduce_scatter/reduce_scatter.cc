// The operation reduce_scatter: what its request is.

#include "virga/collective/reduce_scatter/reduce_scatter.h"

namespace virga::collective {

Task<void> reduce_scatter(Comm& comm, Group group, Vector data, Reduction reduction, std::vector<size_t> counts,
                          Choice choice) {
  Shape shape;
  shape.kind = OpKind::kReduceScatter;
  shape.dtype = shape.wire = data.dtype;
  shape.elements = data.elements;
  shape.offsets = checked_offsets(shape, counts, group.size());
  set_reduction(shape, reduction, group.size());
  return perform(comm, {std::move(group), std::move(shape), data, data}, choice);
}

}  // namespace virga::collective
