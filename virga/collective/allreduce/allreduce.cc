// The operation allreduce: what its request is.

#include "virga/collective/allreduce/allreduce.h"

namespace virga::collective {

Task<void> allreduce(Comm& comm, Group group, Vector data, AllreduceOptions options) {
  Shape shape;
  shape.kind = OpKind::kAllreduce;
  shape.dtype = data.dtype;
  shape.wire = options.wire.value_or(data.dtype);
  shape.elements = data.elements;
  set_reduction(shape, options.reduction, group.size());
  return perform(comm, {std::move(group), std::move(shape), data, data}, options.choice);
}

}  // namespace virga::collective
