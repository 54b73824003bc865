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

#else

const ElementwiseTable& elementwise_table() { return kElementwiseScalar; }
const SelectTable& select_table() { return kSelectScalar; }

#endif

}  // namespace virga::kernel
