#if defined(__x86_64__)

#include <immintrin.h>

#include "virga/kernel/reduce_loops.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

__m256 load(const float* x) { return _mm256_loadu_ps(x); }
void store(float* x, __m256 v) { _mm256_storeu_ps(x, v); }
__m128i load16(const uint16_t* x) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x)); }
void store16(uint16_t* x, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(x), v); }

__m256 from_half(__m128i h) { return _mm256_cvtph_ps(h); }
__m128i to_half(__m256 v) { return _mm256_cvtps_ph(v, kNearest); }

__m256 from_bfloat16(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }

// The bfloat16 of 8 numbers in the low halves of 8 lanes. NaNs may come out as anything.
__m256i round_to_bfloat16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff));
  return _mm256_srli_epi32(_mm256_add_epi32(up, odd), 16);
}

// The same, and quiet NaNs where v has any.
__m256i with_nans(__m256i rounded, __m256 v) {
  const __m256i top = _mm256_srli_epi32(_mm256_castps_si256(v), 16);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), is_nan);
}

// NaNs are rare: one comparison asks for them in both vectors.
__m256i pair_to_bfloat16(__m256 a, __m256 b) {
  __m256i low = round_to_bfloat16(a), high = round_to_bfloat16(b);
  if (_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0) {
    low = with_nans(low, a);
    high = with_nans(high, b);
  }
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}
__m128i to_bfloat16(__m256 v) { return _mm256_castsi256_si128(pair_to_bfloat16(v, v)); }

__m256i pair_to_half(__m256 a, __m256 b) { return _mm256_set_m128i(to_half(b), to_half(a)); }

// The last n < 8 elements go through the same vector code by way of a padded copy.
struct Tail16 {
  Tail16(const uint16_t* src, size_t n) { __builtin_memcpy(lanes, src, n * sizeof(uint16_t)); }
  uint16_t lanes[8] = {};
};

template <__m256 (*from)(__m128i)>
void unpack(float* dst, const uint16_t* src, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) store(dst + i, from(load16(src + i)));
  if (i == n) return;
  float wide[8];
  store(wide, from(load16(Tail16(src + i, n - i).lanes)));
  __builtin_memcpy(dst + i, wide, (n - i) * sizeof(float));
}

template <__m256 (*from)(__m128i)>
void add_unpacked(float* dst, const uint16_t* src, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) store(dst + i, _mm256_add_ps(load(dst + i), from(load16(src + i))));
  if (i == n) return;
  float wide[8];
  store(wide, from(load16(Tail16(src + i, n - i).lanes)));
  for (size_t lane = 0; i < n; ++i, ++lane) dst[i] += wide[lane];
}

template <__m256i (*to)(__m256, __m256)>
void pack(uint16_t* dst, const float* src, float factor, size_t n) {
  const __m256 factors = _mm256_set1_ps(factor);
  const auto pair = [factors](const float* x) {
    return to(_mm256_mul_ps(load(x), factors), _mm256_mul_ps(load(x + 8), factors));
  };
  size_t i = 0;
  for (; i + 16 <= n; i += 16) _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + i), pair(src + i));
  if (i == n) return;
  uint16_t narrow[16];
  float wide[16] = {};
  __builtin_memcpy(wide, src + i, (n - i) * sizeof(float));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(narrow), pair(wide));
  __builtin_memcpy(dst + i, narrow, (n - i) * sizeof(uint16_t));
}

void add(float* dst, const float* src, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) store(dst + i, _mm256_add_ps(load(dst + i), load(src + i)));
  for (; i < n; ++i) dst[i] += src[i];
}

void scale(float* dst, float factor, size_t n) {
  const __m256 factors = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) store(dst + i, _mm256_mul_ps(load(dst + i), factors));
  for (; i < n; ++i) dst[i] *= factor;
}

void sgd(float* param, const float* grad, float lr, float weight_decay, size_t n) {
  const __m256 step = _mm256_set1_ps(-lr), decay = _mm256_set1_ps(weight_decay);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 p = load(param + i);
    const __m256 d = _mm256_add_ps(load(grad + i), _mm256_mul_ps(decay, p));
    store(param + i, _mm256_add_ps(p, _mm256_mul_ps(step, d)));
  }
  for (; i < n; ++i) param[i] += -lr * (grad[i] + weight_decay * param[i]);
}

void sgd_momentum(float* param, const float* grad, float* momentum_buffer, float lr, float momentum, float weight_decay,
                  size_t n) {
  const __m256 step = _mm256_set1_ps(-lr), decay = _mm256_set1_ps(weight_decay);
  const __m256 keep = _mm256_set1_ps(momentum);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 p = load(param + i);
    const __m256 d = _mm256_add_ps(load(grad + i), _mm256_mul_ps(decay, p));
    const __m256 m = _mm256_add_ps(_mm256_mul_ps(load(momentum_buffer + i), keep), d);
    store(momentum_buffer + i, m);
    store(param + i, _mm256_add_ps(p, _mm256_mul_ps(step, m)));
  }
  for (; i < n; ++i) {
    momentum_buffer[i] = momentum_buffer[i] * momentum + (grad[i] + weight_decay * param[i]);
    param[i] += -lr * momentum_buffer[i];
  }
}

constexpr size_t kBytes = sizeof(__m256);

// 16-bit floats as reduce_loops.h wants them.
template <__m256 (*from)(__m128i), __m128i (*to)(__m256)>
struct Half {
  using Element = uint16_t;
  using Wide = Plain<float, kBytes>::Wide;
  static constexpr size_t kLanes = kBytes / sizeof(float);
  static Wide load(const uint16_t* x) { return from(load16(x)); }
  static void store(uint16_t* x, Wide wide) { store16(x, to(wide)); }
};

}  // namespace

const ReduceTable kReduceAvx2 = kReduceLoops<kBytes, Half<from_half, to_half>, Half<from_bfloat16, to_bfloat16>>;

const ElementwiseTable kElementwiseAvx2 = {
    .add = add,
    .add_half = add_unpacked<from_half>,
    .add_bfloat16 = add_unpacked<from_bfloat16>,
    .scale = scale,
    .pack_half = pack<pair_to_half>,
    .unpack_half = unpack<from_half>,
    .pack_bfloat16 = pack<pair_to_bfloat16>,
    .unpack_bfloat16 = unpack<from_bfloat16>,
    .sgd = sgd,
    .sgd_momentum = sgd_momentum,
};

}  // namespace virga::kernel

#endif
