#pragma once

#include <array>
#include <cstdint>

namespace virga {

// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). The n-th block of a stream is a pure function of (seed, stream, n), so any rank can draw any
// number without state, and a run replays from its seed alone.
std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t counter);

// A stream of numbers read in order. Satisfies UniformRandomBitGenerator (64 bits).
class Random {
 public:
  using result_type = uint64_t;

  explicit Random(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }

  uint64_t operator()();

  // Uniform in [0, bound) without modulo bias. bound must not be 0.
  uint64_t below(uint64_t bound);

  // Uniform in [0, 1) with 53 bits.
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

  // Standard normal (Box-Muller; two uniforms a draw, no hidden state).
  double normal();

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int left_ = 0;  // 64-bit words of block_ not yet handed out
};

}  // namespace virga
