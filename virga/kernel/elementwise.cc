#include "virga/kernel/elementwise.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "virga/base/error.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

void require_same(size_t dst, size_t src) {
  require(dst == src, "the destination has {} elements, the source {}", dst, src);
}

using Pack = void (*)(uint16_t*, const float*, float, size_t);
using Unpack = void (*)(float*, const uint16_t*, size_t);

// There and back through 16 bits, a small piece at a time.
void round_through(std::span<float> values, float largest, Pack pack, Unpack unpack) {
  uint16_t piece[256];
  for (size_t i = 0; i < values.size(); i += std::size(piece)) {
    const std::span<float> part = values.subspan(i, std::min(std::size(piece), values.size() - i));
    for (float& value : part) value = std::clamp(value, -largest, largest);
    pack(piece, part.data(), 1.0f, part.size());
    unpack(part.data(), piece, part.size());
  }
}

}  // namespace

void add(std::span<float> dst, std::span<const float> src) {
  require_same(dst.size(), src.size());
  elementwise_table().add(dst.data(), src.data(), dst.size());
}

void add_half(std::span<float> dst, std::span<const uint16_t> src) {
  require_same(dst.size(), src.size());
  elementwise_table().add_half(dst.data(), src.data(), dst.size());
}

void add_bfloat16(std::span<float> dst, std::span<const uint16_t> src) {
  require_same(dst.size(), src.size());
  elementwise_table().add_bfloat16(dst.data(), src.data(), dst.size());
}

void scale(std::span<float> dst, float factor) { elementwise_table().scale(dst.data(), factor, dst.size()); }

void pack_half(std::span<uint16_t> dst, std::span<const float> src, float factor) {
  require_same(dst.size(), src.size());
  elementwise_table().pack_half(dst.data(), src.data(), factor, dst.size());
}

void pack_bfloat16(std::span<uint16_t> dst, std::span<const float> src, float factor) {
  require_same(dst.size(), src.size());
  elementwise_table().pack_bfloat16(dst.data(), src.data(), factor, dst.size());
}

void unpack_half(std::span<float> dst, std::span<const uint16_t> src) {
  require_same(dst.size(), src.size());
  elementwise_table().unpack_half(dst.data(), src.data(), dst.size());
}

void unpack_bfloat16(std::span<float> dst, std::span<const uint16_t> src) {
  require_same(dst.size(), src.size());
  elementwise_table().unpack_bfloat16(dst.data(), src.data(), dst.size());
}

bool all_finite(std::span<const float> x) {
  for (size_t i = 0; i < x.size(); i += kBlock) {
    const size_t size = std::min(kBlock, x.size() - i);
    if (select_table().max_magnitude(x.data() + i, 1.0f, size) >= 0x7f800000u) return false;
  }
  return true;
}

void round_to(DType dtype, std::span<float> values) {
  const ElementwiseTable& table = elementwise_table();
  switch (dtype) {
    case DType::kFloat32:
      return;
    case DType::kFloat16:
      return round_through(values, 65504.0f, table.pack_half, table.unpack_half);
    case DType::kBFloat16:
      return round_through(values, std::bit_cast<float>(0x7f7f0000u), table.pack_bfloat16, table.unpack_bfloat16);
    default:
      fail(ErrorCode::kInvalidArgument, "{} is no floating-point dtype", to_string(dtype));
  }
}

void gather(std::span<float> dst, std::span<const float> src, std::span<const uint32_t> indices) {
  require_same(dst.size(), indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    assert(indices[i] < src.size());
    dst[i] = src[indices[i]];
  }
}

void scatter_add(std::span<float> dst, std::span<const uint32_t> indices, std::span<const float> values) {
  require_same(indices.size(), values.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    assert(indices[i] < dst.size());
    dst[indices[i]] += values[i];
  }
}

}  // namespace virga::kernel
