// The operation allgather: what its request is.

#include "virga/collective/allgather/allgather.h"

namespace virga::collective {

Task<void> allgather(Comm& comm, Group group, Vector data, std::vector<size_t> counts, Choice choice) {
  Shape shape;
  shape.kind = OpKind::kAllgather;
  shape.dtype = shape.wire = data.dtype;
  shape.elements = data.elements;
  shape.offsets = checked_offsets(shape, counts, group.size());
  return perform(comm, {std::move(group), std::move(shape), data, data}, choice);
}

}  // namespace virga::collective
