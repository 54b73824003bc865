#include "virga/codec/elias_fano.h"

#include "virga/base/error.h"

namespace virga::codec {
namespace {

size_t padded_bytes(uint64_t bits) { return static_cast<size_t>((bits + 63) / 64 * 8); }

// Ors a value of a few bits into a zeroed bit string. Only the bytes that it touches are written.
void put_bits(std::byte* section, uint64_t bit, uint64_t value) {
  value <<= bit % 8;
  for (std::byte* at = section + bit / 8; value != 0; value >>= 8) *at++ |= static_cast<std::byte>(value);
}

// True if the bits of the section from `bit` to its end, less than a word, are zero.
bool is_padded_with_zeros(const std::byte* section, size_t bytes, uint64_t bit) {
  if (bit == 8 * bytes) return true;
  uint64_t last;
  std::memcpy(&last, section + bytes - 8, sizeof last);
  return last >> (bit % 64) == 0;
}

}  // namespace

EliasFano::EliasFano(uint64_t n, uint64_t k) : n_(n), k_(k) {
  require(n < (uint64_t{1} << 48), "indices below {} are too large to pack (2^48)", n);
  require(k <= n, "there are no {} unique indices below {}", k, n);
  if (k == 0) return;
  low_bits_ = std::bit_width(n / k) - 1;
  high_bits_ = k + ((n - 1) >> low_bits_) + 1;
  low_bytes_ = padded_bytes(k * static_cast<uint64_t>(low_bits_));
  high_bytes_ = padded_bytes(high_bits_);
}

void EliasFano::encode(std::span<const uint32_t> indices, std::span<std::byte> out) const {
  require(indices.size() == k_, "{} indices given, {} expected", indices.size(), k_);
  require(out.size() == bytes(), "{} bytes given for {} bytes of indices", out.size(), bytes());
  if (k_ == 0) return;
  std::memset(out.data(), 0, out.size());
  std::byte* high = out.data() + low_bytes_;
  const uint64_t low_mask = (uint64_t{1} << low_bits_) - 1;
  uint64_t lowest = 0;
  for (uint64_t i = 0; i < k_; ++i) {
    const uint64_t index = indices[i];
    require(index >= lowest && index < n_, "index {} at position {} is not ascending or not below {}", index, i, n_);
    lowest = index + 1;
    put_bits(out.data(), i * static_cast<uint64_t>(low_bits_), index & low_mask);
    put_bits(high, (index >> low_bits_) + i, 1);
  }
}

void EliasFano::check_shape(std::span<const std::byte> in) const {
  if (in.size() != bytes()) {
    fail(ErrorCode::kCorrupt, "packed indices take {} bytes, not {}", bytes(), in.size());
  }
  if (k_ == 0) return;
  const std::byte* high = in.data() + low_bytes_;
  uint64_t ones = 0;
  for (size_t word = 0; word < high_bytes_ / 8; ++word) {
    ones += static_cast<uint64_t>(std::popcount(load_word(high + 8 * word)));
  }
  if (ones != k_) fail(ErrorCode::kCorrupt, "packed indices hold {} entries, not {}", ones, k_);
  if (!is_padded_with_zeros(in.data(), low_bytes_, k_ * static_cast<uint64_t>(low_bits_))) {
    fail(ErrorCode::kCorrupt, "packed indices are padded with something else than zeros");
  }
}

// A bit in the padding of the high parts needs no check of its own: it would be an index that is
// not below n.
void EliasFano::validate(std::span<const std::byte> in) const {
  check_shape(in);
  uint64_t lowest = 0;
  bool ordered = true;
  for_each(in, [&](uint64_t index) {
    ordered = index >= lowest && index < n_;
    lowest = index + 1;
    return ordered;
  });
  if (ordered) return;
  fail(ErrorCode::kCorrupt, "packed index {} is out of order or not below {}", lowest - 1, n_);
}

void EliasFano::decode(std::span<const std::byte> in, std::span<uint32_t> indices) const {
  require(n_ <= (uint64_t{1} << 32), "indices below {} don't fit into 32 bits", n_);
  require(indices.size() == k_, "room for {} indices, {} needed", indices.size(), k_);
  validate(in);
  uint32_t* next = indices.data();
  for_each(in, [&next](uint64_t index) {
    *next++ = static_cast<uint32_t>(index);
    return true;
  });
}

}  // namespace virga::codec
