#include "virga/kernel/table.h"

#include "virga/kernel/isa.h"

namespace virga::kernel {

#if defined(__x86_64__)

const ElementwiseTable& elementwise_table() {
  switch (active_isa()) {
    case Isa::kAvx512:
      return kElementwiseAvx512;
    case Isa::kAvx2:
      return kElementwiseAvx2;
    case Isa::kScalar:
      break;
  }
  return kElementwiseScalar;
}

const SelectTable& select_table() {
  switch (active_isa()) {
    case Isa::kAvx512:
      return kSelectAvx512;
    case Isa::kAvx2:
      return kSelectAvx2;
    case Isa::kScalar:
      break;
  }
  return kSelectScalar;
}

const ReduceTable& reduce_table() {
  switch (active_isa()) {
    case Isa::kAvx512:
      return kReduceAvx512;
    case Isa::kAvx2:
      return kReduceAvx2;
    case Isa::kScalar:
      break;
  }
  return kReduceScalar;
}

#else

const ElementwiseTable& elementwise_table() { return kElementwiseScalar; }
const SelectTable& select_table() { return kSelectScalar; }
const ReduceTable& reduce_table() { return kReduceScalar; }

#endif

}  // namespace virga::kernel
