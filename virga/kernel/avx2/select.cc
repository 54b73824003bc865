#if defined(__x86_64__)

#include <immintrin.h>

#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

__m256 load(const float* x) { return _mm256_loadu_ps(x); }

__m256i magnitude(__m256 v) { return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)); }

int32_t magnitude(float x) {
  int32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits & 0x7fffffff;
}

// Arrays are read as several streams side by side. A prefetcher follows a stream within one page of memory, once it has
// seen a few lines of it: of a single stream the core awaits the beginning of every page.
constexpr size_t kReadStreams = 4;        // of an array that is read
constexpr size_t kAccumulateStreams = 2;  // of one that is read and one that is read and written

uint32_t max_magnitude(const float* x, float factor, size_t n) {
  const __m256 factors = _mm256_set1_ps(factor);
  __m256i streams[kReadStreams] = {};
  const size_t run = n / kReadStreams & ~size_t{7};
  for (size_t i = 0; i < run; i += 8) {
    for (size_t s = 0; s < kReadStreams; ++s) {
      streams[s] = _mm256_max_epi32(streams[s], magnitude(_mm256_mul_ps(load(x + s * run + i), factors)));
    }
  }
  const __m256i low = _mm256_max_epi32(streams[0], streams[1]), high = _mm256_max_epi32(streams[2], streams[3]);
  int32_t lanes[8], largest = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_max_epi32(low, high));
  for (int32_t lane : lanes) largest = lane > largest ? lane : largest;
  for (size_t i = kReadStreams * run; i < n; ++i) {
    const int32_t m = magnitude(x[i] * factor);
    largest = m > largest ? m : largest;
  }
  return static_cast<uint32_t>(largest);
}

size_t count_above(const float* x, int32_t threshold, size_t n) {
  const __m256i limit = _mm256_set1_epi32(threshold);
  size_t count = 0, i = 0;
  while (i + 8 <= n) {
    const size_t rest = (n - i) & ~size_t{7};
    const size_t end = i + (rest < (size_t{1} << 24) ? rest : size_t{1} << 24);  // no lane overflows
    __m256i below = _mm256_setzero_si256();                                      // minus one for each hit
    for (; i < end; i += 8) below = _mm256_add_epi32(below, _mm256_cmpgt_epi32(magnitude(load(x + i)), limit));
    int32_t lanes[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), below);
    for (int32_t lane : lanes) count += static_cast<uint32_t>(-lane);
  }
  for (; i < n; ++i) count += magnitude(x[i]) > threshold;
  return count;
}

double sum_magnitudes(const float* x, size_t n) {
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kSumBlock) {
    const size_t size = n - begin < kSumBlock ? n - begin : kSumBlock;
    __m256 a = _mm256_setzero_ps(), b = a;
    size_t i = 0;
    for (; i + 16 <= size; i += 16) {
      a = _mm256_add_ps(a, _mm256_castsi256_ps(magnitude(load(x + begin + i))));
      b = _mm256_add_ps(b, _mm256_castsi256_ps(magnitude(load(x + begin + i + 8))));
    }
    float lanes[16];
    _mm256_storeu_ps(lanes, a);
    _mm256_storeu_ps(lanes + 8, b);
    for (; i < size; ++i) lanes[i % 16] += __builtin_fabsf(x[begin + i]);
    for (float lane : lanes) total += lane;
  }
  return total;
}

// One bit an element: 1 where the magnitude of x[0..32) exceeds the limit. The packs leave the
// bytes in the order 0-3, 8-11, 16-19, 24-27 | 4-7, ...; the deposits put the bits back.
uint32_t pack_bits(__m256i m0, __m256i m1, __m256i m2, __m256i m3) {
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(m0, m1), _mm256_packs_epi32(m2, m3));
  return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
}

uint32_t in_order(uint32_t bits) { return _pdep_u32(bits & 0xffffu, 0x0f0f0f0fu) | _pdep_u32(bits >> 16, 0xf0f0f0f0u); }

// The groups of 32 elements of one stream of a block that hold a hit. Appending without a branch costs less
// than the mispredictions of `if (bits)`: at a density of 1 % every fourth group has a hit.
template <size_t kStreams>
struct Groups {
  void append(size_t position, uint32_t bits) {
    entries[count] = static_cast<uint64_t>(position) << 32 | bits;
    count += bits != 0;
  }
  uint64_t entries[kBlock / 32 / kStreams + kStreams + 1];
  size_t count = 0;
};

template <size_t kStreams>
size_t expand(const Groups<kStreams>& groups, const float* x, uint32_t base, uint32_t* indices, float* values) {
  size_t count = 0;
  for (size_t g = 0; g < groups.count; ++g) {
    const uint32_t position = static_cast<uint32_t>(groups.entries[g] >> 32);
    uint32_t bits = in_order(static_cast<uint32_t>(groups.entries[g]));
    const auto take = [&] {
      const uint32_t i = position + _tzcnt_u32(bits) % 32;
      indices[count] = base + i;
      values[count] = x[i];
      count += bits != 0;
      bits &= bits - 1;
    };
    take();
    take();  // without a branch: whether a group has one hit or two is hard to predict
    while (bits != 0) take();
  }
  return count;
}

// Gathers from the groups of 32 among x[0..n), each once. hits(i) says which of the 8 elements from i are hits, as a
// vector. The groups that don't divide by the streams go to the last one.
template <size_t kStreams, class Hits>
size_t gather_groups(Hits hits, const float* x, uint32_t base, size_t n, uint32_t* indices, float* values) {
  Groups<kStreams> streams[kStreams];
  const auto look = [&](size_t s, size_t i) {
    streams[s].append(i, pack_bits(hits(i), hits(i + 8), hits(i + 16), hits(i + 24)));
  };
  const size_t run = n / kStreams & ~size_t{31};
  for (size_t i = 0; i < run; i += 32) {
    for (size_t s = 0; s < kStreams; ++s) look(s, s * run + i);
  }
  for (size_t i = kStreams * run; i + 32 <= n; i += 32) look(kStreams - 1, i);
  size_t count = 0;
  for (const auto& groups : streams) count += expand(groups, x, base, indices + count, values + count);
  return count;
}

size_t gather_tail(const float* x, int32_t threshold, uint32_t base, size_t n, uint32_t* indices, float* values) {
  size_t count = 0;
  for (size_t i = n & ~size_t{31}; i < n; ++i) {
    if (magnitude(x[i]) <= threshold) continue;
    indices[count] = base + static_cast<uint32_t>(i);
    values[count++] = x[i];
  }
  return count;
}

size_t gather(const float* x, int32_t threshold, uint32_t base, size_t n, uint32_t* indices, float* values) {
  const __m256i limit = _mm256_set1_epi32(threshold);
  const auto hits = [&](size_t i) { return _mm256_cmpgt_epi32(magnitude(load(x + i)), limit); };
  const size_t count = gather_groups<kReadStreams>(hits, x, base, n, indices, values);
  return count + gather_tail(x, threshold, base, n, indices + count, values + count);
}

size_t accumulate_gather(float* residual, const float* gradient, float factor, int32_t threshold, uint32_t base,
                         size_t n, uint32_t* indices, float* values) {
  const __m256i limit = _mm256_set1_epi32(threshold);
  const __m256 factors = _mm256_set1_ps(factor);
  const auto hits = [&](size_t i) {
    const __m256 e = _mm256_add_ps(load(residual + i), _mm256_mul_ps(load(gradient + i), factors));
    _mm256_storeu_ps(residual + i, e);
    return _mm256_cmpgt_epi32(magnitude(e), limit);
  };
  const size_t count = gather_groups<kAccumulateStreams>(hits, residual, base, n, indices, values);
  for (size_t i = n & ~size_t{31}; i < n; ++i) residual[i] += gradient[i] * factor;
  return count + gather_tail(residual, threshold, base, n, indices + count, values + count);
}

}  // namespace

const SelectTable kSelectAvx2 = {
    .max_magnitude = max_magnitude,
    .count_above = count_above,
    .sum_magnitudes = sum_magnitudes,
    .gather = gather,
    .accumulate_gather = accumulate_gather,
};

}  // namespace virga::kernel

#endif
