#pragma once

#include "virga/kernel/table.h"

// The loops of reduce.h, for the compiler to vectorise: included once by each instruction set's reduce.cc, which
// compiles them with its own flags. All of it has internal linkage, so that no copy takes another's place.
namespace virga::kernel {
namespace {

// Unsigned, so that they wrap around.
template <class T>
struct Sum {
  T operator()(T a, T b) const { return a + b; }
};
// a is kept where it is NaN; b is taken where it is.
template <class T>
struct Min {
  T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
template <class T>
struct Max {
  T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};

template <class T, class Op>
void reduce_loop(void* dst, const void* src, size_t n) {
  T* const a = static_cast<T*>(dst);
  const T* const b = static_cast<const T*>(src);
  for (size_t i = 0; i < n; ++i) a[i] = Op()(a[i], b[i]);
}

constexpr ReduceTable kReduceLoops = {
    {{reduce_loop<float, Sum<float>>, reduce_loop<float, Min<float>>, reduce_loop<float, Max<float>>},
     {reduce_loop<double, Sum<double>>, reduce_loop<double, Min<double>>, reduce_loop<double, Max<double>>},
     {reduce_loop<uint32_t, Sum<uint32_t>>, reduce_loop<int32_t, Min<int32_t>>, reduce_loop<int32_t, Max<int32_t>>},
     {reduce_loop<uint64_t, Sum<uint64_t>>, reduce_loop<int64_t, Min<int64_t>>, reduce_loop<int64_t, Max<int64_t>>}}};

}  // namespace
}  // namespace virga::kernel
