#include "virga/kernel/packing.h"

#include <cmath>

#include "virga/base/error.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

void check_bits(size_t packed, size_t n, int bits) {
  require(bits == 1 || bits == 2, "codes have 1 or 2 bits, not {}", bits);
  require(packed == packed_bytes(n, bits), "{} codes of {} bits fill {} bytes, not {}", n, bits, packed_bytes(n, bits),
          packed);
}

void check_int8(size_t dst, size_t src, float scale) {
  require(dst == src, "the destination has {} elements, the source {}", dst, src);
  require(std::isfinite(scale) && scale > 0, "a scale is finite and above 0, not {}", scale);
}

}  // namespace

void pack_bits(std::span<uint8_t> dst, std::span<const uint8_t> codes, int bits) {
  check_bits(dst.size(), codes.size(), bits);
  const auto pack = bits == 1 ? packing_table().pack_1bit : packing_table().pack_2bit;
  pack(dst.data(), codes.data(), codes.size());
}

void unpack_bits(std::span<uint8_t> codes, std::span<const uint8_t> src, int bits) {
  check_bits(src.size(), codes.size(), bits);
  const auto unpack = bits == 1 ? packing_table().unpack_1bit : packing_table().unpack_2bit;
  unpack(codes.data(), src.data(), codes.size());
}

void pack_signs(std::span<uint8_t> dst, std::span<const float> src) {
  check_bits(dst.size(), src.size(), 1);
  packing_table().pack_signs(dst.data(), src.data(), src.size());
}

void unpack_signs(std::span<float> dst, std::span<const uint8_t> src, float magnitude) {
  check_bits(src.size(), dst.size(), 1);
  require(std::isfinite(magnitude) && magnitude >= 0, "a magnitude is finite and not below 0, not {}", magnitude);
  packing_table().unpack_signs(dst.data(), src.data(), magnitude, dst.size());
}

void pack_int8(std::span<int8_t> dst, std::span<const float> src, float scale) {
  check_int8(dst.size(), src.size(), scale);
  packing_table().pack_int8(dst.data(), src.data(), scale, src.size());
}

void unpack_int8(std::span<float> dst, std::span<const int8_t> src, float scale) {
  check_int8(dst.size(), src.size(), scale);
  packing_table().unpack_int8(dst.data(), src.data(), scale, src.size());
}

}  // namespace virga::kernel
