#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace virga::codec {

static_assert(std::endian::native == std::endian::little, "the layouts of codec/ are little-endian");

// Ascending, unique indices below n in a number of bytes that depends on (n, k) alone.
//
// Elias-Fano: with l = floor(log2(n / k)), the low l bits of every index stand side by side; of the
// high parts h_i, bit h_i + i is set in a string of k + ((n - 1) >> l) + 1 bits. About l + 2 bits
// an index: 8.6 at 1 %, where the entropy is 8.1. Source: P. Elias, "Efficient storage and
// retrieval by content and address of static files", JACM 21 (1974); R. Fano, "On the number of
// bits required to implement an associative memory" (1971).
//
// Layout, little-endian; bit i of a section is bit i % 8 of its byte i / 8:
//   low parts    k * l bits, padded with zeros to a multiple of 8 bytes
//   high parts   k + ((n - 1) >> l) + 1 bits, padded with zeros to a multiple of 8 bytes
// No index at all (k = 0) takes no byte.
class EliasFano {
 public:
  // k <= n < 2^48, so that every size fits: kInvalidArgument otherwise.
  EliasFano(uint64_t n, uint64_t k);

  size_t bytes() const { return low_bytes_ + high_bytes_; }

  // indices: k of them, ascending, unique, below n; out: bytes() bytes. kInvalidArgument otherwise.
  void encode(std::span<const uint32_t> indices, std::span<std::byte> out) const;

  // Throws kCorrupt unless `in` is what encode writes for some k indices. Reads nothing outside
  // `in`.
  void validate(std::span<const std::byte> in) const;

  // validate(), then writes the k indices. kInvalidArgument if n is above 2^32 or `indices` is not
  // of size k.
  void decode(std::span<const std::byte> in, std::span<uint32_t> indices) const;

  // Calls visit(index) for each index in ascending order, until it returns false. Never reads
  // outside `in` and never visits more than k times, but only after validate() are the indices
  // ascending, unique and below n. `in` must have bytes() bytes.
  template <class Visit>
  void for_each(std::span<const std::byte> in, Visit visit) const {
    const std::byte* high = in.data() + low_bytes_;
    uint64_t i = 0;
    for (size_t word = 0; word < high_bytes_ / 8; ++word) {
      for (uint64_t bits = load_word(high + 8 * word); bits != 0; bits &= bits - 1) {
        if (i == k_) return;
        const uint64_t position = 64 * word + static_cast<uint64_t>(std::countr_zero(bits));
        const uint64_t index = ((position - i) << low_bits_) | low_part(in.data(), i);
        if (!visit(index)) return;
        ++i;
      }
    }
  }

 private:
  static uint64_t load_word(const std::byte* at) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    return word;
  }

  // At most 48 + 7 bits, so one word holds them. It may reach into the high parts, which are 8
  // bytes at least.
  uint64_t low_part(const std::byte* low, uint64_t i) const {
    const uint64_t bit = i * static_cast<uint64_t>(low_bits_);
    return (load_word(low + bit / 8) >> (bit % 8)) & ((uint64_t{1} << low_bits_) - 1);
  }

  void check_shape(std::span<const std::byte> in) const;

  uint64_t n_, k_;
  int low_bits_ = 0;
  uint64_t high_bits_ = 0;
  size_t low_bytes_ = 0, high_bytes_ = 0;
};

}  // namespace virga::codec
