#if defined(__x86_64__)

#include <immintrin.h>

#include "virga/kernel/reduce_loops.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

// The lanes of a group of 16 that hold one of the `left` remaining elements. Lanes outside are
// neither read nor written, so tails need no code of their own.
__mmask16 lanes(size_t left) { return static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1u); }

__m512 load(__mmask16 m, const float* x) { return _mm512_maskz_loadu_ps(m, x); }
void store(float* x, __mmask16 m, __m512 v) { _mm512_mask_storeu_ps(x, m, v); }
__m256i load16(__mmask16 m, const uint16_t* x) { return _mm256_maskz_loadu_epi16(m, x); }
void store16(uint16_t* x, __mmask16 m, __m256i v) { _mm256_mask_storeu_epi16(x, m, v); }

__m512 from_half(__m256i h) { return _mm512_cvtph_ps(h); }
__m256i to_half(__m512 v) { return _mm512_cvtps_ph(v, kNearest); }

__m512 from_bfloat16(__m256i h) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }

__m256i to_bfloat16(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i top = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  const __m512i round = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, round), 16);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_or_epi32(rounded, is_nan, top, _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(result);
}

template <__m512 (*from)(__m256i)>
void unpack(float* dst, const uint16_t* src, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    store(dst + i, m, from(load16(m, src + i)));
  }
}

template <__m512 (*from)(__m256i)>
void add_unpacked(float* dst, const uint16_t* src, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    store(dst + i, m, _mm512_add_ps(load(m, dst + i), from(load16(m, src + i))));
  }
}

template <__m256i (*to)(__m512)>
void pack(uint16_t* dst, const float* src, float factor, size_t n) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    store16(dst + i, m, to(_mm512_mul_ps(load(m, src + i), factors)));
  }
}

void add(float* dst, const float* src, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    store(dst + i, m, _mm512_add_ps(load(m, dst + i), load(m, src + i)));
  }
}

void scale(float* dst, float factor, size_t n) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    store(dst + i, m, _mm512_mul_ps(load(m, dst + i), factors));
  }
}

void sgd(float* param, const float* grad, float lr, float weight_decay, size_t n) {
  const __m512 step = _mm512_set1_ps(-lr), decay = _mm512_set1_ps(weight_decay);
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512 p = load(m, param + i);
    const __m512 d = _mm512_add_ps(load(m, grad + i), _mm512_mul_ps(decay, p));
    store(param + i, m, _mm512_add_ps(p, _mm512_mul_ps(step, d)));
  }
}

void sgd_momentum(float* param, const float* grad, float* momentum_buffer, float lr, float momentum, float weight_decay,
                  size_t n) {
  const __m512 step = _mm512_set1_ps(-lr), decay = _mm512_set1_ps(weight_decay);
  const __m512 keep = _mm512_set1_ps(momentum);
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512 p = load(m, param + i);
    const __m512 d = _mm512_add_ps(load(m, grad + i), _mm512_mul_ps(decay, p));
    const __m512 b = _mm512_add_ps(_mm512_mul_ps(load(m, momentum_buffer + i), keep), d);
    store(momentum_buffer + i, m, b);
    store(param + i, m, _mm512_add_ps(p, _mm512_mul_ps(step, b)));
  }
}

constexpr size_t kBytes = sizeof(__m512);

// 16-bit floats as reduce_loops.h wants them.
template <__m512 (*from)(__m256i), __m256i (*to)(__m512)>
struct Half {
  using Element = uint16_t;
  using Wide = Plain<float, kBytes>::Wide;
  static constexpr size_t kLanes = kBytes / sizeof(float);
  static Wide load(const uint16_t* x) { return from(load16(lanes(kLanes), x)); }
  static void store(uint16_t* x, Wide wide) { store16(x, lanes(kLanes), to(wide)); }
};

}  // namespace

const ReduceTable kReduceAvx512 = kReduceLoops<kBytes, Half<from_half, to_half>, Half<from_bfloat16, to_bfloat16>>;

const ElementwiseTable kElementwiseAvx512 = {
    .add = add,
    .add_half = add_unpacked<from_half>,
    .add_bfloat16 = add_unpacked<from_bfloat16>,
    .scale = scale,
    .pack_half = pack<to_half>,
    .unpack_half = unpack<from_half>,
    .pack_bfloat16 = pack<to_bfloat16>,
    .unpack_bfloat16 = unpack<from_bfloat16>,
    .sgd = sgd,
    .sgd_momentum = sgd_momentum,
};

}  // namespace virga::kernel

#endif
