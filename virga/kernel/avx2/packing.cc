#if defined(__x86_64__)

#include <immintrin.h>

#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

__m256i load(const void* x) { return _mm256_loadu_si256(static_cast<const __m256i*>(x)); }
void store(void* x, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(x), v); }

// Calls group(dst, src) for every whole group of elements; kDst and kSrc say how many entries of either array one group
// is, the larger of them how many elements. The arrays are walked as several streams side by side, since a prefetcher
// follows a stream within one page of memory only, once it has seen a few lines of it: of a single stream the core
// awaits the beginning of every page. The last elements go through the same code by way of padded copies.
template <size_t kDst, size_t kSrc, class Dst, class Src, class Group>
void for_groups(Dst* dst, const Src* src, size_t n, Group group) {
  constexpr size_t kElements = kDst > kSrc ? kDst : kSrc, kStreams = 4;
  const size_t groups = n / kElements, run = groups / kStreams;
  const auto visit = [&](size_t i) { group(dst + i * kDst, src + i * kSrc); };
  for (size_t i = 0; i < run; ++i) {
    for (size_t s = 0; s < kStreams; ++s) visit(s * run + i);
  }
  for (size_t i = kStreams * run; i < groups; ++i) visit(i);
  const size_t left = n % kElements;
  if (left == 0) return;
  Dst padded_dst[kDst];
  Src padded_src[kSrc] = {};
  __builtin_memcpy(padded_src, src + groups * kSrc, (left * kSrc + kElements - 1) / kElements * sizeof(Src));
  group(padded_dst, padded_src);
  __builtin_memcpy(dst + groups * kDst, padded_dst, (left * kDst + kElements - 1) / kElements * sizeof(Dst));
}

// What packing four vectors of integers down to bytes leaves, brought in order: either half holds 4 bytes of each.
__m256i in_order(__m256i packed) {
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

void pack_1bit(uint8_t* dst, const uint8_t* codes, size_t n) {
  for_groups<4, 32>(dst, codes, n, [](uint8_t* to, const uint8_t* from) {
    const int bits = _mm256_movemask_epi8(_mm256_slli_epi16(load(from), 7));
    __builtin_memcpy(to, &bits, sizeof bits);
  });
}

void unpack_1bit(uint8_t* codes, const uint8_t* src, size_t n) {
  // Byte j of the four goes to lanes 8 j ... 8 j + 7, of which each looks at one bit.
  const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  for_groups<32, 4>(codes, src, n, [&](uint8_t* to, const uint8_t* from) {
    int bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of), bit_of);
    store(to, _mm256_min_epu8(own, _mm256_set1_epi8(1)));
  });
}

// Four 2-bit codes a 32-bit lane become the low byte of that lane.
__m256i join_2bit(__m256i codes) {
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi8(3));
  const __m256i pairs = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x0401));  // c0 + 4 c1
  return _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00100001));              // p0 + 16 p1
}

void pack_2bit(uint8_t* dst, const uint8_t* codes, size_t n) {
  for_groups<32, 128>(dst, codes, n, [](uint8_t* to, const uint8_t* from) {
    const __m256i a = join_2bit(load(from)), b = join_2bit(load(from + 32));
    const __m256i c = join_2bit(load(from + 64)), d = join_2bit(load(from + 96));
    store(to, in_order(_mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d))));
  });
}

void unpack_2bit(uint8_t* codes, const uint8_t* src, size_t n) {
  for_groups<32, 8>(codes, src, n, [](uint8_t* to, const uint8_t* from) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m256i halves = _mm256_or_si256(bytes, _mm256_slli_epi32(bytes, 12));  // codes 2 and 3 from bit 16 on
    const __m256i quarters = _mm256_or_si256(halves, _mm256_slli_epi32(halves, 6));
    store(to, _mm256_and_si256(quarters, _mm256_set1_epi8(3)));
  });
}

void pack_signs(uint8_t* dst, const float* src, size_t n) {
  for_groups<4, 32>(dst, src, n, [](uint8_t* to, const float* from) {
    uint32_t bits = 0;
    for (int j = 0; j < 4; ++j) {
      bits |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_loadu_ps(from + 8 * j))) << (8 * j);
    }
    __builtin_memcpy(to, &bits, sizeof bits);
  });
}

void unpack_signs(float* dst, const uint8_t* src, float magnitude, size_t n) {
  const __m256 magnitudes = _mm256_set1_ps(magnitude), sign = _mm256_set1_ps(-0.0f);
  const __m256i to_sign = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  for_groups<16, 2>(dst, src, n, [&](float* to, const uint8_t* from) {  // a line of the cache
    for (int j = 0; j < 2; ++j) {
      const __m256 bits = _mm256_castsi256_ps(_mm256_sllv_epi32(_mm256_set1_epi32(from[j]), to_sign));
      _mm256_storeu_ps(to + 8 * j, _mm256_or_ps(magnitudes, _mm256_and_ps(bits, sign)));
    }
  });
}

// Of a NaN, min and max return their second operand: it stays, and converts to the integer that saturates to kInt8NaN.
__m256i quantised(const float* x, __m256 scale) {
  const __m256 steps = _mm256_div_ps(_mm256_loadu_ps(x), scale);
  const __m256 held = _mm256_max_ps(_mm256_set1_ps(-127), _mm256_min_ps(_mm256_set1_ps(127), steps));
  return _mm256_cvtps_epi32(held);
}

void pack_int8(int8_t* dst, const float* src, float scale, size_t n) {
  const __m256 scales = _mm256_set1_ps(scale);
  for_groups<32, 32>(dst, src, n, [scales](int8_t* to, const float* from) {
    const __m256i a = quantised(from, scales), b = quantised(from + 8, scales);
    const __m256i c = quantised(from + 16, scales), d = quantised(from + 24, scales);
    store(to, in_order(_mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d))));
  });
}

void unpack_int8(float* dst, const int8_t* src, float scale, size_t n) {
  const __m256 scales = _mm256_set1_ps(scale), nan = _mm256_set1_ps(__builtin_nanf(""));
  for_groups<8, 8>(dst, src, n, [=](float* to, const int8_t* from) {
    const __m256i codes = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m256 values = _mm256_mul_ps(_mm256_cvtepi32_ps(codes), scales);
    const __m256i is_nan = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(-128));
    _mm256_storeu_ps(to, _mm256_blendv_ps(values, nan, _mm256_castsi256_ps(is_nan)));
  });
}

}  // namespace

const PackingTable kPackingAvx2 = {
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
