#pragma once

#include <cstddef>
#include <cstdint>

// The inner loops that exist once per instruction set, as tables of function pointers: scalar/,
// avx2/ and avx512/ each fill all of them, and every entry gives the same bits in all three.
// Callers use the checked functions of elementwise.h, packing.h, sgd.h, topk.h and mstopk.h instead.
//
// The files in avx2/ and avx512/ include this header, reduce_loops.h and <immintrin.h> only: an inline function of
// a shared header, compiled there with more instructions, could be the copy that the linker keeps
// for everybody.
namespace virga::kernel {

// `dst` and `src` don't overlap unless they are equal. 16-bit arrays hold IEEE half or bfloat16
// bits.
struct ElementwiseTable {
  void (*add)(float* dst, const float* src, size_t n);
  void (*add_half)(float* dst, const uint16_t* src, size_t n);
  void (*add_bfloat16)(float* dst, const uint16_t* src, size_t n);
  void (*scale)(float* dst, float factor, size_t n);
  void (*pack_half)(uint16_t* dst, const float* src, float factor, size_t n);
  void (*unpack_half)(float* dst, const uint16_t* src, size_t n);
  void (*pack_bfloat16)(uint16_t* dst, const float* src, float factor, size_t n);
  void (*unpack_bfloat16)(float* dst, const uint16_t* src, size_t n);
  void (*sgd)(float* param, const float* grad, float lr, float weight_decay, size_t n);
  void (*sgd_momentum)(float* param, const float* grad, float* momentum_buffer, float lr, float momentum,
                       float weight_decay, size_t n);
};

// The magnitude of a float is its bits without the sign: an integer that orders |x|, with Inf
// (0x7f800000) and NaN above every finite number. A threshold is signed and strict, so -1 lets
// everything pass.
struct SelectTable {
  // The largest magnitude of x[i] * factor; 0 for n = 0.
  uint32_t (*max_magnitude)(const float* x, float factor, size_t n);

  // How many magnitudes exceed `threshold`.
  size_t (*count_above)(const float* x, int32_t threshold, size_t n);

  // Sum of |x[i]|: 16 interleaved fp32 partial sums a block of kSumBlock elements, added up in double
  // in lane order. The order is the same in every instruction set.
  double (*sum_magnitudes)(const float* x, size_t n);

  // Writes base + i and x[i] for every i whose magnitude exceeds `threshold`, in order of i;
  // returns how many. n <= kBlock, and both outputs have room for n entries, of which one behind the last may be
  // written, too.
  size_t (*gather)(const float* x, int32_t threshold, uint32_t base, size_t n, uint32_t* indices, float* values);

  // residual[i] += gradient[i] * factor, then gather from residual, in one pass.
  size_t (*accumulate_gather)(float* residual, const float* gradient, float factor, int32_t threshold, uint32_t base,
                              size_t n, uint32_t* indices, float* values);
};

// See packing.h.
struct PackingTable {
  void (*pack_1bit)(uint8_t* dst, const uint8_t* codes, size_t n);
  void (*unpack_1bit)(uint8_t* codes, const uint8_t* src, size_t n);
  void (*pack_2bit)(uint8_t* dst, const uint8_t* codes, size_t n);
  void (*unpack_2bit)(uint8_t* codes, const uint8_t* src, size_t n);
  void (*pack_signs)(uint8_t* dst, const float* src, size_t n);
  void (*unpack_signs)(float* dst, const uint8_t* src, float magnitude, size_t n);
  void (*pack_int8)(int8_t* dst, const float* src, float scale, size_t n);
  void (*unpack_int8)(float* dst, const int8_t* src, float scale, size_t n);
};

// dst[i] = inputs[0][i] op inputs[1][i] op ..., see reduce.h; count is at least 1, dst may be one of the inputs.
using ReduceLoop = void (*)(void* dst, const void* const* inputs, size_t count, size_t n);
struct ReduceTable {
  ReduceLoop loops[6][3];  // fp32, fp64, int32, int64, fp16, bf16; sum, min, max
};

inline constexpr size_t kBlock = 32768;    // elements; 128 KiB, half of a small second-level cache
inline constexpr size_t kSumBlock = 4096;  // short enough that fp32 partial sums keep their precision

extern const ElementwiseTable kElementwiseScalar, kElementwiseAvx2, kElementwiseAvx512;
extern const SelectTable kSelectScalar, kSelectAvx2, kSelectAvx512;
extern const PackingTable kPackingScalar, kPackingAvx2, kPackingAvx512;
extern const ReduceTable kReduceScalar, kReduceAvx2, kReduceAvx512;

// The tables of active_isa().
const ElementwiseTable& elementwise_table();
const SelectTable& select_table();
const PackingTable& packing_table();
const ReduceTable& reduce_table();

}  // namespace virga::kernel
