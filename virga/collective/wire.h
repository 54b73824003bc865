#pragma once

#include "virga/collective/shape.h"

namespace virga::collective {

// fp32 that travels as 16 bits: what an algorithm does to elements on their way to the wire and back. `dtype` is
// kFloat16 or kBFloat16.
struct HalfWire {
  explicit HalfWire(DType dtype);

  // dst = src, dst += src, dst = src; the 16-bit side is dst, src, src.
  void pack(Vector dst, Vector src) const;
  void add(Vector dst, Vector src) const;
  void unpack(Vector dst, Vector src) const;

  DType dtype;
};

// Whether an algorithm that knows HalfWire can send what is asked: elements as they are, or fp32 that is summed as 16
// bits.
bool fits_half_wire(const Shape& shape);
// Whether nothing is to be converted: all that most algorithms can do.
inline bool fits_no_conversion(const Shape& shape) { return !shape.converts(); }

}  // namespace virga::collective
