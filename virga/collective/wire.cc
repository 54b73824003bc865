#include "virga/collective/wire.h"

#include "virga/kernel/elementwise.h"

namespace virga::collective {
namespace {

std::span<uint16_t> halves(Vector vector) { return {reinterpret_cast<uint16_t*>(vector.data), vector.elements}; }

bool sums(const Shape& shape) { return shape.reduction == Reduction::kSum || shape.reduction == Reduction::kAverage; }

}  // namespace

HalfWire::HalfWire(DType dtype) : dtype(dtype) {
  require(dtype == DType::kFloat16 || dtype == DType::kBFloat16, "{} is no 16-bit float", to_string(dtype));
}

void HalfWire::pack(Vector dst, Vector src) const {
  return dtype == DType::kFloat16 ? kernel::pack_half(halves(dst), src.floats())
                                  : kernel::pack_bfloat16(halves(dst), src.floats());
}

void HalfWire::add(Vector dst, Vector src) const {
  return dtype == DType::kFloat16 ? kernel::add_half(dst.floats(), halves(src))
                                  : kernel::add_bfloat16(dst.floats(), halves(src));
}

void HalfWire::unpack(Vector dst, Vector src) const {
  return dtype == DType::kFloat16 ? kernel::unpack_half(dst.floats(), halves(src))
                                  : kernel::unpack_bfloat16(dst.floats(), halves(src));
}

bool fits_half_wire(const Shape& shape) {
  if (!shape.converts()) return true;
  const bool half = shape.wire == DType::kFloat16 || shape.wire == DType::kBFloat16;
  return shape.dtype == DType::kFloat32 && half && sums(shape);
}

}  // namespace virga::collective
