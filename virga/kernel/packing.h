#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Small codes, dense on the wire: 1 or 2 bits an element, or linear int8. Element i of b-bit codes lies in byte
// i * b / 8, from bit i * b % 8 on, least significant bit first; the bits behind the last element are zero when written
// and not looked at when read. Sizes that don't agree and scales out of range are kInvalidArgument. Spans don't
// overlap. Every instruction set gives the same bits.
namespace virga::kernel {

// The bytes that n codes of `bits` bits fill.
constexpr size_t packed_bytes(size_t n, int bits) {
  const size_t per_byte = 8 / static_cast<size_t>(bits);
  return n / per_byte + (n % per_byte != 0);
}

// Codes of 1 or 2 bits, one a byte, into dst, which has packed_bytes(codes.size(), bits) bytes. Only the low `bits`
// bits of a code count.
void pack_bits(std::span<uint8_t> dst, std::span<const uint8_t> codes, int bits);

// codes[i] = the i-th code of src, which has packed_bytes(codes.size(), bits) bytes.
void unpack_bits(std::span<uint8_t> codes, std::span<const uint8_t> src, int bits);

// One bit an element: the sign bit of src[i], so -0 and a NaN with its sign set give 1, too.
void pack_signs(std::span<uint8_t> dst, std::span<const float> src);

// dst[i] = -magnitude where bit i is set, else magnitude, which must be finite and not below 0.
void unpack_signs(std::span<float> dst, std::span<const uint8_t> src, float magnitude);

inline constexpr int8_t kInt8NaN = -128;

// dst[i] = src[i] / scale, rounded to nearest even and held within [-127, 127], which is where infinities go. NaN
// becomes kInt8NaN, so that it is not lost. The scale, the distance of two codes, must be finite and above 0.
void pack_int8(std::span<int8_t> dst, std::span<const float> src, float scale);

// dst[i] = src[i] * scale; kInt8NaN becomes a quiet NaN. The scale must be finite and above 0.
void unpack_int8(std::span<float> dst, std::span<const int8_t> src, float scale);

}  // namespace virga::kernel
