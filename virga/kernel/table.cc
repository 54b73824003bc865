#include "virga/kernel/table.h"

#include "virga/kernel/isa.h"

namespace virga::kernel {

#if defined(__x86_64__)

template <class Table>
static const Table& of_active_isa(const Table& scalar, const Table& avx2, const Table& avx512) {
  switch (active_isa()) {
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx2:
      return avx2;
    case Isa::kScalar:
      break;
  }
  return scalar;
}

const ElementwiseTable& elementwise_table() {
  return of_active_isa(kElementwiseScalar, kElementwiseAvx2, kElementwiseAvx512);
}
const SelectTable& select_table() { return of_active_isa(kSelectScalar, kSelectAvx2, kSelectAvx512); }
const PackingTable& packing_table() { return of_active_isa(kPackingScalar, kPackingAvx2, kPackingAvx512); }
const ReduceTable& reduce_table() { return of_active_isa(kReduceScalar, kReduceAvx2, kReduceAvx512); }

#else

const ElementwiseTable& elementwise_table() { return kElementwiseScalar; }
const SelectTable& select_table() { return kSelectScalar; }
const PackingTable& packing_table() { return kPackingScalar; }
const ReduceTable& reduce_table() { return kReduceScalar; }

#endif

}  // namespace virga::kernel
