#include "virga/kernel/reduce_loops.h"

namespace virga::kernel {

const ReduceTable kReduceScalar = kReduceLoops;

}  // namespace virga::kernel
