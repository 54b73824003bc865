#pragma once

#include "virga/collective/shape.h"
#include "virga/pattern/part_slices.h"

namespace virga::collective {

// The parts of all members in slices of `length` elements, at least one.
inline pattern::PartSlices part_slices(const Shape& shape, size_t length) {
  std::vector<pattern::Range> parts;
  for (int member = 0; member < shape.members(); ++member) parts.push_back(shape.part(member));
  return {std::move(parts), std::max<size_t>(length, 1)};
}

}  // namespace virga::collective
