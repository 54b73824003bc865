#if defined(__x86_64__)

#include "virga/kernel/reduce_loops.h"

namespace virga::kernel {

const ReduceTable kReduceAvx512 = kReduceLoops;

}  // namespace virga::kernel

#endif
