#pragma once

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "virga/base/random.h"
#include "virga/kernel/isa.h"

namespace virga::kernel {

// A fixture whose tests run once per instruction set. Where this CPU lacks one, the test says so
// and is skipped.
class EveryIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_supported(GetParam())) {
      GTEST_SKIP() << "this CPU has no " << to_string(GetParam()) << ": this path was not run here";
    }
  }
};

inline std::string isa_name(const testing::TestParamInfo<Isa>& info) { return std::string(to_string(info.param)); }

inline const auto kAllIsas = testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512);

// Sizes around every vector width and block.
inline const std::vector<size_t> kSizes = {0,  1,  7,  8,   9,   15,   16,   17,   31,    32,    33,
                                           63, 64, 65, 100, 257, 4095, 4096, 4097, 32767, 32768, 65537};

inline std::vector<float> normals(size_t n, uint64_t seed, float scale = 1.0f) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = scale * static_cast<float>(random.normal());
  return x;
}

// Floats of every kind: random bits give subnormals, infinities and NaNs their share.
inline std::vector<float> any_bits(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (random.below(8) == 0) bits |= 0x7f800000u;                        // NaN or Inf
    if (random.below(8) == 0) bits &= 0x807fffffu;                        // subnormal or zero
    if (random.below(4) == 0) bits = (bits & 0x8fffffffu) | 0x38000000u;  // where half's grid is
    if (random.below(8) == 0) bits = (bits & 0xffff0000u) | 0x8000u;      // a tie for bfloat16
    if (random.below(8) == 0) bits = (bits & 0xffffe000u) | 0x1000u;      // a tie for half
    value = std::bit_cast<float>(bits);
  }
  return x;
}

inline std::vector<uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<uint32_t> bits(x.size());
  for (size_t i = 0; i < x.size(); ++i) bits[i] = std::bit_cast<uint32_t>(x[i]);
  return bits;
}

}  // namespace virga::kernel
