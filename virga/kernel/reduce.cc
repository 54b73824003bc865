#include "virga/kernel/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "virga/base/error.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

constexpr size_t kPiece = 2048;  // elements that are worked on at once: 16 KiB of doubles stay in the first-level cache

// Room for a piece of any dtype.
struct alignas(64) Accumulator {
  std::byte bytes[kPiece * sizeof(double)];
};

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// What elements are reduced as: halves are floats meanwhile.
DType accumulated_as(DType dtype) { return is_half(dtype) ? DType::kFloat32 : dtype; }

ReduceLoop loop_of(ReduceOp op, DType dtype) {
  const ReduceTable& table = reduce_table();
  const size_t which = static_cast<size_t>(op);
  require(which < std::size(table.loops[0]), "unknown reduction {}", which);
  switch (accumulated_as(dtype)) {
    case DType::kFloat32:
      return table.loops[0][which];
    case DType::kFloat64:
      return table.loops[1][which];
    case DType::kInt32:
      return table.loops[2][which];
    case DType::kInt64:
      return table.loops[3][which];
    default:
      fail(ErrorCode::kInvalidArgument, "{} elements can't be reduced", to_string(dtype));
  }
}

void check(DType dtype, std::span<const std::byte> dst, std::span<const std::byte> src) {
  const size_t size = size_of(dtype);
  require(dst.size() == src.size(), "the destination has {} bytes, the source {}", dst.size(), src.size());
  require(dst.size() % size == 0, "{} bytes are no whole number of {} elements", dst.size(), to_string(dtype));
  const auto aligned = [size](const std::byte* at) { return reinterpret_cast<uintptr_t>(at) % size == 0; };
  require(aligned(dst.data()) && aligned(src.data()), "{} elements are not aligned", to_string(dtype));
}

// A piece of an input as it is accumulated: the input itself, or `wide` with what its halves are.
const void* widened(DType dtype, const std::byte* src, size_t n, float* wide) {
  const uint16_t* const halves = reinterpret_cast<const uint16_t*>(src);
  if (dtype == DType::kFloat16) {
    elementwise_table().unpack_half(wide, halves, n);
  } else if (dtype == DType::kBFloat16) {
    elementwise_table().unpack_bfloat16(wide, halves, n);
  } else {
    return src;
  }
  return wide;
}

// sum[i] = sum[i] op src[i], where sums are what elements are accumulated as.
void accumulate(ReduceOp op, DType dtype, ReduceLoop loop, void* sum, const std::byte* src, size_t n) {
  const uint16_t* const halves = reinterpret_cast<const uint16_t*>(src);
  if (op == ReduceOp::kSum && dtype == DType::kFloat16) {
    elementwise_table().add_half(static_cast<float*>(sum), halves, n);
  } else if (op == ReduceOp::kSum && dtype == DType::kBFloat16) {
    elementwise_table().add_bfloat16(static_cast<float*>(sum), halves, n);
  } else {
    float wide[kPiece];
    loop(sum, widened(dtype, src, n, wide), n);
  }
}

void narrow(DType dtype, std::byte* dst, const void* sum, size_t n) {
  uint16_t* const halves = reinterpret_cast<uint16_t*>(dst);
  if (dtype == DType::kFloat16) {
    elementwise_table().pack_half(halves, static_cast<const float*>(sum), 1.0f, n);
  } else if (dtype == DType::kBFloat16) {
    elementwise_table().pack_bfloat16(halves, static_cast<const float*>(sum), 1.0f, n);
  } else {
    std::memcpy(dst, sum, n * size_of(dtype));
  }
}

// Calls piece(first byte, elements) for one piece after the other.
template <class Piece>
void for_each_piece(DType dtype, size_t bytes, Piece piece) {
  const size_t step = kPiece * size_of(dtype);
  for (size_t at = 0; at < bytes; at += step) piece(at, std::min(step, bytes - at) / size_of(dtype));
}

template <class T>
void divide_each(std::span<std::byte> dst, T divisor) {
  T* const x = reinterpret_cast<T*>(dst.data());
  for (size_t i = 0; i < dst.size() / sizeof(T); ++i) x[i] /= divisor;
}

}  // namespace

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "unknown";
}

void reduce(ReduceOp op, DType dtype, std::span<std::byte> dst, std::span<const std::byte> src) {
  check(dtype, dst, src);
  const ReduceLoop loop = loop_of(op, dtype);
  if (!is_half(dtype)) return loop(dst.data(), src.data(), dst.size() / size_of(dtype));
  for_each_piece(dtype, dst.size(), [&](size_t at, size_t n) {
    float sum[kPiece];
    widened(dtype, dst.data() + at, n, sum);
    accumulate(op, dtype, loop, sum, src.data() + at, n);
    narrow(dtype, dst.data() + at, sum, n);
  });
}

void reduce(ReduceOp op, DType dtype, std::span<std::byte> dst, std::span<const std::span<const std::byte>> inputs) {
  require(!inputs.empty(), "nothing to reduce: no input");
  for (std::span<const std::byte> input : inputs) check(dtype, dst, input);
  const ReduceLoop loop = loop_of(op, dtype);
  const size_t accumulated_size = size_of(accumulated_as(dtype));
  for_each_piece(dtype, dst.size(), [&](size_t at, size_t n) {
    Accumulator sum;
    float* const wide = reinterpret_cast<float*>(sum.bytes);
    const void* const first = widened(dtype, inputs[0].data() + at, n, wide);
    if (first != wide) std::memcpy(sum.bytes, first, n * accumulated_size);
    for (std::span<const std::byte> input : inputs.subspan(1)) {
      accumulate(op, dtype, loop, sum.bytes, input.data() + at, n);
    }
    narrow(dtype, dst.data() + at, sum.bytes, n);
  });
}

void divide(DType dtype, std::span<std::byte> dst, int divisor) {
  check(dtype, dst, dst);
  require(divisor > 0, "a sum can't be divided by {}", divisor);
  switch (dtype) {
    case DType::kFloat32:
      return divide_each<float>(dst, static_cast<float>(divisor));
    case DType::kFloat64:
      return divide_each<double>(dst, divisor);
    case DType::kInt32:
      return divide_each<int32_t>(dst, divisor);
    case DType::kInt64:
      return divide_each<int64_t>(dst, divisor);
    case DType::kFloat16:
    case DType::kBFloat16:
      return for_each_piece(dtype, dst.size(), [&](size_t at, size_t n) {
        float wide[kPiece];
        widened(dtype, dst.data() + at, n, wide);
        for (size_t i = 0; i < n; ++i) wide[i] /= static_cast<float>(divisor);
        narrow(dtype, dst.data() + at, wide, n);
      });
    default:
      fail(ErrorCode::kInvalidArgument, "{} elements can't be divided", to_string(dtype));
  }
}

}  // namespace virga::kernel
