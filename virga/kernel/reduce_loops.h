#pragma once

#include "virga/kernel/table.h"

// The loops of reduce.h over vectors of any length, included once by each instruction set's elementwise.cc, which
// compiles them with its own flags. All of it has internal linkage, so that no copy takes another's place.
//
// A Format says how elements are reduced: Element is what lies in memory, Wide a vector (or a number) of kLanes of
// them as they are counted with, load and store lead from one to the other.
namespace virga::kernel {
namespace {

// Elements that are counted with as they are.
template <class T, size_t kBytes>
struct Plain {
  using Element = T;
  typedef T Wide __attribute__((vector_size(kBytes)));
  static constexpr size_t kLanes = kBytes / sizeof(T);

  static Wide load(const T* x) {
    Wide wide;
    __builtin_memcpy(&wide, x, sizeof wide);
    return wide;
  }
  static void store(T* x, Wide wide) { __builtin_memcpy(x, &wide, sizeof wide); }
};

struct Sum {
  template <class Wide>
  static Wide of(Wide a, Wide b) {
    return a + b;
  }
};
// a is kept where it is NaN; b is taken where it is.
struct Min {
  template <class Wide>
  static Wide of(Wide a, Wide b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct Max {
  template <class Wide>
  static Wide of(Wide a, Wide b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};

// kVectors vectors from element `at` on. The sum stays in registers, and all inputs are read side by side: memory
// serves several streams faster than one after the other.
template <class Format, class Op, size_t kVectors>
void reduce_vectors(void* dst, const void* const* inputs, size_t count, size_t at) {
  using Element = typename Format::Element;
  typename Format::Wide sum[kVectors];
  const auto load = [inputs, at](size_t input, size_t vector) {
    return Format::load(static_cast<const Element*>(inputs[input]) + at + vector * Format::kLanes);
  };
  for (size_t v = 0; v < kVectors; ++v) sum[v] = load(0, v);
  for (size_t input = 1; input < count; ++input) {
    for (size_t v = 0; v < kVectors; ++v) sum[v] = Op::of(sum[v], load(input, v));
  }
  for (size_t v = 0; v < kVectors; ++v) Format::store(static_cast<Element*>(dst) + at + v * Format::kLanes, sum[v]);
}

// The last elements, fewer than a vector has, in padded copies.
template <class Format, class Op>
void reduce_rest(void* dst, const void* const* inputs, size_t count, size_t at, size_t left) {
  using Element = typename Format::Element;
  Element padded[Format::kLanes] = {};
  const auto load = [&](size_t input) {
    __builtin_memcpy(padded, static_cast<const Element*>(inputs[input]) + at, left * sizeof(Element));
    return Format::load(padded);
  };
  typename Format::Wide sum = load(0);
  for (size_t input = 1; input < count; ++input) sum = Op::of(sum, load(input));
  Format::store(padded, sum);
  __builtin_memcpy(static_cast<Element*>(dst) + at, padded, left * sizeof(Element));
}

template <class Format, class Op>
void reduce_loop(void* dst, const void* const* inputs, size_t count, size_t n) {
  constexpr size_t kVectors = 4;
  size_t i = 0;
  for (; i + kVectors * Format::kLanes <= n; i += kVectors * Format::kLanes) {
    reduce_vectors<Format, Op, kVectors>(dst, inputs, count, i);
  }
  for (; i + Format::kLanes <= n; i += Format::kLanes) reduce_vectors<Format, Op, 1>(dst, inputs, count, i);
  if (i < n) reduce_rest<Format, Op>(dst, inputs, count, i, n - i);
}

// kBytes: the length of a vector. Sums of integers wrap around: they are unsigned.
template <size_t kBytes, class Half, class BFloat16>
constexpr ReduceTable kReduceLoops = {{
    {reduce_loop<Plain<float, kBytes>, Sum>, reduce_loop<Plain<float, kBytes>, Min>,
     reduce_loop<Plain<float, kBytes>, Max>},
    {reduce_loop<Plain<double, kBytes>, Sum>, reduce_loop<Plain<double, kBytes>, Min>,
     reduce_loop<Plain<double, kBytes>, Max>},
    {reduce_loop<Plain<uint32_t, kBytes>, Sum>, reduce_loop<Plain<int32_t, kBytes>, Min>,
     reduce_loop<Plain<int32_t, kBytes>, Max>},
    {reduce_loop<Plain<uint64_t, kBytes>, Sum>, reduce_loop<Plain<int64_t, kBytes>, Min>,
     reduce_loop<Plain<int64_t, kBytes>, Max>},
    {reduce_loop<Half, Sum>, reduce_loop<Half, Min>, reduce_loop<Half, Max>},
    {reduce_loop<BFloat16, Sum>, reduce_loop<BFloat16, Min>, reduce_loop<BFloat16, Max>},
}};

}  // namespace
}  // namespace virga::kernel
