// The reference: what every vector path must equal bit for bit.
#include "virga/kernel/packing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

template <int kBits>
void pack_bits(uint8_t* dst, const uint8_t* codes, size_t n) {
  std::fill_n(dst, packed_bytes(n, kBits), uint8_t{0});
  for (size_t i = 0; i < n; ++i) {
    const int code = codes[i] & ((1 << kBits) - 1);
    dst[i * kBits / 8] |= static_cast<uint8_t>(code << (i * kBits % 8));
  }
}

template <int kBits>
void unpack_bits(uint8_t* codes, const uint8_t* src, size_t n) {
  for (size_t i = 0; i < n; ++i) codes[i] = (src[i * kBits / 8] >> (i * kBits % 8)) & ((1 << kBits) - 1);
}

void pack_signs(uint8_t* dst, const float* src, size_t n) {
  std::fill_n(dst, packed_bytes(n, 1), uint8_t{0});
  for (size_t i = 0; i < n; ++i) dst[i / 8] |= static_cast<uint8_t>(std::signbit(src[i]) << (i % 8));
}

void unpack_signs(float* dst, const uint8_t* src, float magnitude, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = (src[i / 8] >> (i % 8)) & 1 ? -magnitude : magnitude;
}

void pack_int8(int8_t* dst, const float* src, float scale, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float steps = src[i] / scale;
    dst[i] = std::isnan(steps) ? kInt8NaN : static_cast<int8_t>(std::nearbyint(std::clamp(steps, -127.0f, 127.0f)));
  }
}

void unpack_int8(float* dst, const int8_t* src, float scale, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    dst[i] = src[i] == kInt8NaN ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(src[i]) * scale;
  }
}

}  // namespace

const PackingTable kPackingScalar = {
    .pack_1bit = pack_bits<1>,
    .unpack_1bit = unpack_bits<1>,
    .pack_2bit = pack_bits<2>,
    .unpack_2bit = unpack_bits<2>,
    .pack_signs = pack_signs,
    .unpack_signs = unpack_signs,
    .pack_int8 = pack_int8,
    .unpack_int8 = unpack_int8,
};

}  // namespace virga::kernel
