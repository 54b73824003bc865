#if defined(__x86_64__)

#include <immintrin.h>

#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

// The first `left` lanes of 16 or 64, all if there are more. Lanes outside are neither read nor written, so tails need
// no code of their own.
__mmask16 lanes16(size_t left) { return static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1u); }
__mmask64 lanes64(size_t left) { return left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1u; }

// The 64 bits from src on, of which the last bytes may lie behind the end.
uint64_t load_bits(const uint8_t* src, size_t bits) {
  uint64_t word = 0;
  __builtin_memcpy(&word, src, bits >= 64 ? 8 : (bits + 7) / 8);
  return word;
}

void store_bits(uint8_t* dst, uint64_t word, size_t bits) {
  __builtin_memcpy(dst, &word, bits >= 64 ? 8 : (bits + 7) / 8);
}

void pack_1bit(uint8_t* dst, const uint8_t* codes, size_t n) {
  for (size_t i = 0; i < n; i += 64) {
    const __m512i group = _mm512_maskz_loadu_epi8(lanes64(n - i), codes + i);
    store_bits(dst + i / 8, _mm512_test_epi8_mask(group, _mm512_set1_epi8(1)), n - i);
  }
}

void unpack_1bit(uint8_t* codes, const uint8_t* src, size_t n) {
  for (size_t i = 0; i < n; i += 64) {
    const __m512i group = _mm512_maskz_set1_epi8(load_bits(src + i / 8, n - i), 1);
    _mm512_mask_storeu_epi8(codes + i, lanes64(n - i), group);
  }
}

void pack_2bit(uint8_t* dst, const uint8_t* codes, size_t n) {
  for (size_t i = 0; i < n; i += 64) {
    const __m512i low = _mm512_and_si512(_mm512_maskz_loadu_epi8(lanes64(n - i), codes + i), _mm512_set1_epi8(3));
    const __m512i pairs = _mm512_maddubs_epi16(low, _mm512_set1_epi16(0x0401));     // c0 + 4 c1
    const __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));  // p0 + 16 p1
    _mm512_mask_cvtepi32_storeu_epi8(dst + i / 4, lanes16((n - i + 3) / 4), quads);
  }
}

void unpack_2bit(uint8_t* codes, const uint8_t* src, size_t n) {
  for (size_t i = 0; i < n; i += 64) {
    const __m128i packed = _mm_maskz_loadu_epi8(lanes16((n - i + 3) / 4), src + i / 4);
    const __m512i bytes = _mm512_cvtepu8_epi32(packed);
    const __m512i halves = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));  // codes 2 and 3 from bit 16 on
    const __m512i quarters = _mm512_or_si512(halves, _mm512_slli_epi32(halves, 6));
    _mm512_mask_storeu_epi8(codes + i, lanes64(n - i), _mm512_and_si512(quarters, _mm512_set1_epi8(3)));
  }
}

// Calls group(i) for every multiple i of 64 below n. The long array is walked as several streams side by side, since a
// prefetcher follows a stream within one page of memory only, once it has seen a few lines of it: of a single stream
// the core awaits the beginning of every page.
template <class Group>
void for_streams(size_t n, Group group) {
  constexpr size_t kStreams = 4;
  const size_t run = n / (kStreams * 64) * 64;
  for (size_t i = 0; i < run; i += 64) {
    for (size_t s = 0; s < kStreams; ++s) group(s * run + i);
  }
  for (size_t i = kStreams * run; i < n; i += 64) group(i);
}

void pack_signs(uint8_t* dst, const float* src, size_t n) {
  for_streams(n, [=](size_t i) {
    uint64_t bits = 0;
    for (size_t j = 0; j < 64 && i + j < n; j += 16) {
      const __m512i group = _mm512_maskz_loadu_epi32(lanes16(n - i - j), src + i + j);
      bits |= static_cast<uint64_t>(_mm512_movepi32_mask(group)) << j;
    }
    store_bits(dst + i / 8, bits, n - i);
  });
}

void unpack_signs(float* dst, const uint8_t* src, float magnitude, size_t n) {
  const __m512 plus = _mm512_set1_ps(magnitude), minus = _mm512_set1_ps(-magnitude);
  for_streams(n, [=](size_t i) {
    uint64_t bits = load_bits(src + i / 8, n - i);
    for (size_t j = 0; j < 64 && i + j < n; j += 16, bits >>= 16) {
      const __m512 group = _mm512_mask_blend_ps(static_cast<__mmask16>(bits), plus, minus);
      _mm512_mask_storeu_ps(dst + i + j, lanes16(n - i - j), group);
    }
  });
}

// Of a NaN, min and max return their second operand: it stays, and converts to the integer that saturates to kInt8NaN.
void pack_int8(int8_t* dst, const float* src, float scale, size_t n) {
  const __m512 scales = _mm512_set1_ps(scale), low = _mm512_set1_ps(-127), high = _mm512_set1_ps(127);
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes16(n - i);
    const __m512 steps = _mm512_div_ps(_mm512_maskz_loadu_ps(m, src + i), scales);
    const __m512i codes = _mm512_cvtps_epi32(_mm512_max_ps(low, _mm512_min_ps(high, steps)));
    _mm512_mask_cvtsepi32_storeu_epi8(dst + i, m, codes);
  }
}

void unpack_int8(float* dst, const int8_t* src, float scale, size_t n) {
  const __m512 scales = _mm512_set1_ps(scale), nan = _mm512_set1_ps(__builtin_nanf(""));
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes16(n - i);
    const __m512i codes = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, src + i));
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(-128));
    const __m512 values = _mm512_mul_ps(_mm512_cvtepi32_ps(codes), scales);
    _mm512_mask_storeu_ps(dst + i, m, _mm512_mask_blend_ps(is_nan, values, nan));
  }
}

}  // namespace

const PackingTable kPackingAvx512 = {
    .pack_1bit = pack_1bit,
    .unpack_1bit = unpack_1bit,
    .pack_2bit = pack_2bit,
    .unpack_2bit = unpack_2bit,
    .pack_signs = pack_signs,
    .unpack_signs = unpack_signs,
    .pack_int8 = pack_int8,
    .unpack_int8 = unpack_int8,
};

}  // namespace virga::kernel

#endif
