#include "virga/codec/sparse_format.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "virga/base/error.h"
#include "virga/base/half.h"
#include "virga/kernel/elementwise.h"

namespace virga::codec {
namespace {

constexpr uint64_t kFinite = 0, kPoison = 1;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// True if the word has no exponent of all ones, which is what NaN and Inf have.
template <class Word, Word exponent>
bool words_finite(const std::byte* at, uint64_t k) {
  bool finite = true;
  for (uint64_t i = 0; i < k; ++i) finite &= (load<Word>(at + i * sizeof(Word)) & exponent) != exponent;
  return finite;
}

bool values_finite(DType dtype, const std::byte* at, uint64_t k) {
  if (dtype == DType::kFloat32) return words_finite<uint32_t, 0x7f800000u>(at, k);
  if (dtype == DType::kFloat16) return words_finite<uint16_t, 0x7c00u>(at, k);
  return words_finite<uint16_t, 0x7f80u>(at, k);
}

struct Float32 {
  static constexpr size_t kBytes = 4;
  static float load_value(const std::byte* at) { return load<float>(at); }
};
struct Float16 {
  static constexpr size_t kBytes = 2;
  static float load_value(const std::byte* at) { return half_to_float(load<uint16_t>(at)); }
};
struct BFloat16 {
  static constexpr size_t kBytes = 2;
  static float load_value(const std::byte* at) { return bfloat16_to_float(load<uint16_t>(at)); }
};

template <class Value>
std::vector<float> load_values(const std::byte* at, uint64_t k) {
  std::vector<float> values(k);
  for (uint64_t i = 0; i < k; ++i) values[i] = Value::load_value(at + i * Value::kBytes);
  return values;
}

// A piece of indices at a time, so that the prefetches run ahead of the additions.
template <class Value>
void add_values(const EliasFano& coder, std::span<const std::byte> indices, const std::byte* value, float* dst) {
  uint64_t piece[128];
  size_t size = 0;
  const auto add_piece = [&] {
    for (size_t i = 0; i < size; ++i) dst[piece[i]] += Value::load_value(value + i * Value::kBytes);
    value += size * Value::kBytes;
    size = 0;
  };
  coder.for_each(indices, [&](uint64_t index) {
    __builtin_prefetch(dst + index, 1);
    piece[size++] = index;
    if (size == std::size(piece)) add_piece();
    return true;
  });
  add_piece();
}

uint64_t checked_k(uint64_t n, uint64_t k) {
  require(k <= n && (k >= 1 || n == 0), "a sparse message of {} elements can't hold {}", n, k);
  return k;
}

size_t padded_value_bytes(uint64_t k, DType dtype) {
  require(dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16,
          "sparse values are fp32, fp16 or bf16, not {}", to_string(dtype));
  return (k * size_of(dtype) + 7) / 8 * 8;
}

}  // namespace

SparseFormat::SparseFormat(uint64_t n, uint64_t k, DType value_dtype)
    : n_(n),
      k_(checked_k(n, k)),
      value_dtype_(value_dtype),
      value_bytes_(padded_value_bytes(k, value_dtype)),
      indices_(n, k) {}

std::span<const std::byte> SparseFormat::values_of(std::span<const std::byte> in) const {
  return in.subspan(kFlagBytes, value_bytes_);
}

std::span<const std::byte> SparseFormat::indices_of(std::span<const std::byte> in) const {
  return in.subspan(kFlagBytes + value_bytes_);
}

// By way of a small aligned piece, since `out` may stand at any address.
void SparseFormat::pack_values(std::span<const float> values, std::span<std::byte> out) const {
  const size_t width = size_of(value_dtype_);
  if (value_dtype_ == DType::kFloat32) {
    std::memcpy(out.data(), values.data(), values.size() * width);
    return;
  }
  uint16_t piece[256];
  for (size_t i = 0; i < values.size(); i += std::size(piece)) {
    const auto part = values.subspan(i, std::min(std::size(piece), values.size() - i));
    const std::span<uint16_t> words(piece, part.size());
    value_dtype_ == DType::kFloat16 ? kernel::pack_half(words, part) : kernel::pack_bfloat16(words, part);
    std::memcpy(out.data() + i * width, piece, part.size() * width);
  }
}

void SparseFormat::encode(std::span<const uint32_t> indices, std::span<const float> values,
                          std::span<std::byte> out) const {
  require(out.size() == payload_bytes(), "{} bytes given for a sparse message of {} bytes", out.size(),
          payload_bytes());
  require(values.size() == k_, "{} values given, {} expected", values.size(), k_);
  const std::span<std::byte> value_section = out.subspan(kFlagBytes, value_bytes_);
  indices_.encode(indices, out.subspan(kFlagBytes + value_bytes_));
  std::memcpy(out.data(), &kFinite, kFlagBytes);
  if (k_ == 0) return;
  std::memset(value_section.data() + value_bytes_ - 8, 0, 8);  // the padding is in the last word
  pack_values(values, value_section);
  if (!values_finite(value_dtype_, value_section.data(), k_)) {
    fail(ErrorCode::kNonFinite, "a value is NaN or Inf, or too large for {}", to_string(value_dtype_));
  }
}

void SparseFormat::encode_poison(std::span<std::byte> out) const {
  require(out.size() == payload_bytes(), "{} bytes given for a sparse message of {} bytes", out.size(),
          payload_bytes());
  std::memset(out.data(), 0, out.size());
  std::memcpy(out.data(), &kPoison, kFlagBytes);
}

SparsePayload SparseFormat::validate(std::span<const std::byte> in) const {
  if (in.size() != payload_bytes()) {
    fail(ErrorCode::kCorrupt, "a sparse message of {} in {} elements takes {} bytes, not {}", k_, n_, payload_bytes(),
         in.size());
  }
  const uint64_t flag = load<uint64_t>(in.data());
  if (flag == kPoison && is_zero(in.subspan(kFlagBytes))) return {*this, in, false};
  if (flag != kFinite) fail(ErrorCode::kCorrupt, "a sparse message has flag {} and contents that disagree", flag);
  const auto values = values_of(in);
  if (!values_finite(value_dtype_, values.data(), k_)) {
    fail(ErrorCode::kCorrupt, "a sparse message holds NaN or Inf though its flag says that it is finite");
  }
  if (!is_zero(values.subspan(k_ * size_of(value_dtype_)))) {
    fail(ErrorCode::kCorrupt, "the values of a sparse message are padded with something else than zeros");
  }
  indices_.validate(indices_of(in));
  return {*this, in, true};
}

bool SparseFormat::decode_add(std::span<const std::byte> in, std::span<float> dst) const {
  const SparsePayload payload = validate(in);
  payload.add_to(dst);
  return payload.finite();
}

void SparsePayload::add_to(std::span<float> dst) const {
  require(dst.size() == format_.n(), "a sparse message of {} elements can't be added to {}", format_.n(), dst.size());
  if (!finite_ || format_.k() == 0) return;
  const EliasFano& coder = format_.indices_;
  const auto indices = format_.indices_of(bytes_);
  const std::byte* values = format_.values_of(bytes_).data();
  switch (format_.value_dtype()) {
    case DType::kFloat16:
      return add_values<Float16>(coder, indices, values, dst.data());
    case DType::kBFloat16:
      return add_values<BFloat16>(coder, indices, values, dst.data());
    default:
      return add_values<Float32>(coder, indices, values, dst.data());
  }
}

Entries SparsePayload::entries() const {
  Entries entries;
  if (!finite_ || format_.k() == 0) return entries;
  entries.indices.resize(format_.k());
  format_.indices_.decode(format_.indices_of(bytes_), entries.indices);
  const std::byte* values = format_.values_of(bytes_).data();
  switch (format_.value_dtype()) {
    case DType::kFloat16:
      entries.values = load_values<Float16>(values, format_.k());
      break;
    case DType::kBFloat16:
      entries.values = load_values<BFloat16>(values, format_.k());
      break;
    default:
      entries.values = load_values<Float32>(values, format_.k());
  }
  return entries;
}

}  // namespace virga::codec
