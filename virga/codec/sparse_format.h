#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "virga/base/dtype.h"
#include "virga/codec/elias_fano.h"
#include "virga/codec/entries.h"

namespace virga::codec {

class SparsePayload;

// k of n elements as bytes. The size depends on (n, k, value_dtype) alone; those are known to both
// sides and are not part of the bytes.
//
// Layout, little-endian, every section a multiple of 8 bytes:
//   flag      8 bytes   0: finite. 1: the sender's gradient held NaN or Inf; all other bytes are 0
//   values    k * size_of(value_dtype) bytes in order of index, padded with zeros
//   indices   EliasFano(n, k)
class SparseFormat {
 public:
  // value_dtype is kFloat32, kFloat16 or kBFloat16; k <= n <= 2^32 (n < 2^48 if only the size is
  // asked for), and k >= 1 unless n is 0: kInvalidArgument otherwise.
  SparseFormat(uint64_t n, uint64_t k, DType value_dtype);

  uint64_t n() const { return n_; }
  uint64_t k() const { return k_; }
  DType value_dtype() const { return value_dtype_; }
  size_t payload_bytes() const { return kFlagBytes + value_bytes_ + indices_.bytes(); }

  // Packs k ascending unique indices and their values into payload_bytes() bytes at any alignment.
  // Values are rounded to value_dtype; those of a TopK selection are already. kInvalidArgument if
  // sizes or indices are wrong, kNonFinite if a value is (or rounds to) NaN or Inf.
  void encode(std::span<const uint32_t> indices, std::span<const float> values, std::span<std::byte> out) const;

  // Packs the message of a sender whose gradient was not finite: it contributes nothing.
  void encode_poison(std::span<std::byte> out) const;

  // Checks every byte: size, flag, padding, that values are finite, that there are exactly k
  // indices, ascending, unique and below n. Throws kCorrupt. The result refers to `in`, which must
  // stay and must not change.
  SparsePayload validate(std::span<const std::byte> in) const;

  // validate(in), then adds. dst is untouched if that throws. Returns false for a poisoned message.
  bool decode_add(std::span<const std::byte> in, std::span<float> dst) const;

 private:
  friend class SparsePayload;
  static constexpr size_t kFlagBytes = 8;

  std::span<const std::byte> values_of(std::span<const std::byte> in) const;
  std::span<const std::byte> indices_of(std::span<const std::byte> in) const;
  void pack_values(std::span<const float> values, std::span<std::byte> out) const;

  uint64_t n_, k_;
  DType value_dtype_;
  size_t value_bytes_;
  EliasFano indices_;
};

// A message that has passed SparseFormat::validate.
class SparsePayload {
 public:
  // False if the sender's gradient held NaN or Inf; the message then contributes nothing.
  bool finite() const { return finite_; }

  // dst[index] += value in ascending order of index. dst has n elements: kInvalidArgument
  // otherwise.
  void add_to(std::span<float> dst) const;

  // What it holds; nothing if it is not finite. kInvalidArgument if n is above 2^32.
  Entries entries() const;

 private:
  friend class SparseFormat;
  SparsePayload(const SparseFormat& format, std::span<const std::byte> bytes, bool finite)
      : format_(format), bytes_(bytes), finite_(finite) {}

  SparseFormat format_;
  std::span<const std::byte> bytes_;
  bool finite_;
};

}  // namespace virga::codec
