// The operation barrier: what its request is.

#include "virga/collective/barrier/barrier.h"

namespace virga::collective {

Task<void> barrier(Comm& comm, Group group) {
  Shape shape;
  shape.kind = OpKind::kBarrier;
  shape.dtype = shape.wire = DType::kByte;
  return perform(comm, {std::move(group), std::move(shape)}, {});
}

}  // namespace virga::collective
