#if defined(__x86_64__)

#include <immintrin.h>

#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

// The lanes of a group of 16 that hold one of the `left` remaining elements; the others read as
// zero.
__mmask16 lanes(size_t left) { return static_cast<__mmask16>(left >= 16 ? 0xffffu : (1u << left) - 1u); }

__m512 load(__mmask16 m, const float* x) { return _mm512_maskz_loadu_ps(m, x); }

__m512i magnitude(__m512 v) { return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)); }

// Arrays are read as several streams side by side. A prefetcher follows a stream within one page of memory, once it has
// seen a few lines of it: of a single stream the core awaits the beginning of every page.
constexpr size_t kReadStreams = 4;        // of an array that is read
constexpr size_t kAccumulateStreams = 2;  // of one that is read and one that is read and written

uint32_t max_magnitude(const float* x, float factor, size_t n) {
  const __m512 factors = _mm512_set1_ps(factor);
  __m512i streams[kReadStreams] = {};
  const size_t run = n / kReadStreams & ~size_t{15};
  for (size_t i = 0; i < run; i += 16) {
    for (size_t s = 0; s < kReadStreams; ++s) {
      const __m512 group = _mm512_loadu_ps(x + s * run + i);
      streams[s] = _mm512_max_epi32(streams[s], magnitude(_mm512_mul_ps(group, factors)));
    }
  }
  for (size_t i = kReadStreams * run; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    const __m512i group = magnitude(_mm512_mul_ps(load(m, x + i), factors));
    streams[0] = _mm512_mask_max_epi32(streams[0], m, streams[0], group);
  }
  const __m512i low = _mm512_max_epi32(streams[0], streams[1]), high = _mm512_max_epi32(streams[2], streams[3]);
  int32_t found[16], result = 0;
  _mm512_storeu_si512(found, _mm512_max_epi32(low, high));
  for (int32_t lane : found) result = lane > result ? lane : result;
  return static_cast<uint32_t>(result);
}

size_t count_above(const float* x, int32_t threshold, size_t n) {
  const __m512i limit = _mm512_set1_epi32(threshold);
  size_t count = 0;
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 m = lanes(n - i);
    count += static_cast<size_t>(__builtin_popcount(_mm512_mask_cmpgt_epi32_mask(m, magnitude(load(m, x + i)), limit)));
  }
  return count;
}

double sum_magnitudes(const float* x, size_t n) {
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kSumBlock) {
    const size_t size = n - begin < kSumBlock ? n - begin : kSumBlock;
    __m512 sum = _mm512_setzero_ps();
    for (size_t i = 0; i < size; i += 16) {
      const __mmask16 m = lanes(size - i);
      sum = _mm512_mask_add_ps(sum, m, sum, _mm512_castsi512_ps(magnitude(load(m, x + begin + i))));
    }
    float partial[16];
    _mm512_storeu_ps(partial, sum);
    for (float lane : partial) total += lane;
  }
  return total;
}

// The groups of 64 elements of one stream of a block that hold a hit, one bit an element. Appending takes no branch.
template <size_t kStreams>
struct Groups {
  void append(size_t position, uint64_t hits) {
    positions[count] = static_cast<uint32_t>(position);
    bits[count] = hits;
    count += hits != 0;
  }
  static constexpr size_t kMost = kBlock / 64 / kStreams + kStreams + 2;
  uint32_t positions[kMost];
  uint64_t bits[kMost];
  size_t count = 0;
};

template <size_t kStreams>
size_t expand(const Groups<kStreams>& groups, const float* x, uint32_t base, uint32_t* indices, float* values) {
  size_t count = 0;
  for (size_t g = 0; g < groups.count; ++g) {
    for (uint64_t bits = groups.bits[g]; bits != 0; bits &= bits - 1) {
      const uint32_t i = groups.positions[g] + static_cast<uint32_t>(_tzcnt_u64(bits));
      indices[count] = base + i;
      values[count++] = x[i];
    }
  }
  return count;
}

// hits_of(i, mask) says which of the 16 elements from i are hits, among those of the mask; it is asked once for each.
// The groups that don't divide by the streams go to the last one.
template <size_t kStreams, class HitsOf>
size_t gather_hits(HitsOf hits_of, const float* x, uint32_t base, size_t n, uint32_t* indices, float* values) {
  Groups<kStreams> streams[kStreams];
  const auto look = [&](size_t s, size_t i) {
    uint64_t bits = 0;
    for (size_t j = 0; j < 64 && i + j < n; j += 16) {
      bits |= static_cast<uint64_t>(hits_of(i + j, lanes(n - i - j))) << j;
    }
    streams[s].append(i, bits);
  };
  const size_t run = n / kStreams & ~size_t{63};
  for (size_t i = 0; i < run; i += 64) {
    for (size_t s = 0; s < kStreams; ++s) look(s, s * run + i);
  }
  for (size_t i = kStreams * run; i < n; i += 64) look(kStreams - 1, i);
  size_t count = 0;
  for (const auto& groups : streams) count += expand(groups, x, base, indices + count, values + count);
  return count;
}

size_t gather(const float* x, int32_t threshold, uint32_t base, size_t n, uint32_t* indices, float* values) {
  const __m512i limit = _mm512_set1_epi32(threshold);
  const auto hits_of = [&](size_t i, __mmask16 m) {
    return _mm512_mask_cmpgt_epi32_mask(m, magnitude(load(m, x + i)), limit);
  };
  return gather_hits<kReadStreams>(hits_of, x, base, n, indices, values);
}

size_t accumulate_gather(float* residual, const float* gradient, float factor, int32_t threshold, uint32_t base,
                         size_t n, uint32_t* indices, float* values) {
  const __m512i limit = _mm512_set1_epi32(threshold);
  const __m512 factors = _mm512_set1_ps(factor);
  const auto hits_of = [&](size_t i, __mmask16 m) {
    const __m512 step = _mm512_mul_ps(load(m, gradient + i), factors);
    const __m512 e = _mm512_add_ps(load(m, residual + i), step);
    _mm512_mask_storeu_ps(residual + i, m, e);
    return _mm512_mask_cmpgt_epi32_mask(m, magnitude(e), limit);
  };
  return gather_hits<kAccumulateStreams>(hits_of, residual, base, n, indices, values);
}

}  // namespace

const SelectTable kSelectAvx512 = {
    .max_magnitude = max_magnitude,
    .count_above = count_above,
    .sum_magnitudes = sum_magnitudes,
    .gather = gather,
    .accumulate_gather = accumulate_gather,
};

}  // namespace virga::kernel

#endif
