#include "virga/kernel/reduce.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "virga/base/error.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

constexpr size_t kPiece = 2048;  // elements of 16 bits that are divided at once: 8 KiB of floats

ReduceLoop loop_of(ReduceOp op, DType dtype) {
  const ReduceTable& table = reduce_table();
  const size_t which = static_cast<size_t>(op);
  require(which < std::size(table.loops[0]), "unknown reduction {}", which);
  switch (dtype) {
    case DType::kFloat32:
      return table.loops[0][which];
    case DType::kFloat64:
      return table.loops[1][which];
    case DType::kInt32:
      return table.loops[2][which];
    case DType::kInt64:
      return table.loops[3][which];
    case DType::kFloat16:
      return table.loops[4][which];
    case DType::kBFloat16:
      return table.loops[5][which];
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

template <class T>
void divide_each(std::span<std::byte> dst, T divisor) {
  T* const x = reinterpret_cast<T*>(dst.data());
  for (size_t i = 0; i < dst.size() / sizeof(T); ++i) x[i] /= divisor;
}

// By way of fp32, a piece at a time.
template <class Unpack, class Pack>
void divide_halves(std::span<std::byte> dst, float divisor, Unpack unpack, Pack pack) {
  uint16_t* const x = reinterpret_cast<uint16_t*>(dst.data());
  const size_t elements = dst.size() / sizeof(uint16_t);
  for (size_t at = 0; at < elements; at += kPiece) {
    const size_t n = std::min(kPiece, elements - at);
    float wide[kPiece];
    unpack(wide, x + at, n);
    for (size_t i = 0; i < n; ++i) wide[i] /= divisor;
    pack(x + at, wide, 1.0f, n);
  }
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
  const void* const inputs[] = {dst.data(), src.data()};
  loop_of(op, dtype)(dst.data(), inputs, 2, dst.size() / size_of(dtype));
}

void reduce(ReduceOp op, DType dtype, std::span<std::byte> dst, std::span<const std::span<const std::byte>> inputs) {
  require(!inputs.empty(), "nothing to reduce: no input");
  std::vector<const void*> starts;
  for (std::span<const std::byte> input : inputs) {
    check(dtype, dst, input);
    starts.push_back(input.data());
  }
  loop_of(op, dtype)(dst.data(), starts.data(), starts.size(), dst.size() / size_of(dtype));
}

void divide(DType dtype, std::span<std::byte> dst, int divisor) {
  check(dtype, dst, dst);
  require(divisor > 0, "a sum can't be divided by {}", divisor);
  const ElementwiseTable& table = elementwise_table();
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
      return divide_halves(dst, static_cast<float>(divisor), table.unpack_half, table.pack_half);
    case DType::kBFloat16:
      return divide_halves(dst, static_cast<float>(divisor), table.unpack_bfloat16, table.pack_bfloat16);
    default:
      fail(ErrorCode::kInvalidArgument, "{} elements can't be divided", to_string(dtype));
  }
}

}  // namespace virga::kernel
