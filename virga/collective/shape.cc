#include "virga/collective/shape.h"

#include <bit>

#include "virga/base/hash.h"

namespace virga::collective {
namespace {

template <class T>
uint64_t hash_of(const std::vector<T>& numbers) {
  return fnv1a({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)});
}

}  // namespace

kernel::ReduceOp Shape::reduce_op() const {
  switch (reduction) {
    case Reduction::kMin:
      return kernel::ReduceOp::kMin;
    case Reduction::kMax:
      return kernel::ReduceOp::kMax;
    case Reduction::kSum:
    case Reduction::kAverage:
      break;
  }
  return kernel::ReduceOp::kSum;
}

uint64_t Shape::fingerprint() const {
  std::vector<uint64_t> all = {std::bit_cast<uint64_t>(density), slice_bytes, hash_of(offsets)};
  for (const std::vector<int>& neighbours : graph) all.push_back(hash_of(neighbours));
  return hash_of(all);
}

void set_reduction(Shape& shape, Reduction reduction, int members) {
  require(shape.dtype != DType::kByte, "{} needs numbers, not bytes", net::to_string(shape.kind));
  shape.reduction = reduction;
  shape.divisor = reduction == Reduction::kAverage ? members : 1;
}

std::vector<size_t> checked_offsets(const Shape& shape, const std::vector<size_t>& counts, int members) {
  if (counts.empty()) return {};
  const std::string_view operation = net::to_string(shape.kind);
  require(counts.size() == static_cast<size_t>(members), "{} got {} sizes for {} members", operation, counts.size(),
          members);
  std::vector<size_t> offsets(counts.size() + 1);
  for (size_t i = 0; i < counts.size(); ++i) {
    require(counts[i] <= shape.elements - offsets[i], "{}: part {} ends behind the {} elements that there are",
            operation, i, shape.elements);
    offsets[i + 1] = offsets[i] + counts[i];
  }
  require(offsets.back() == shape.elements, "the sizes given to {} add up to {} elements, the vector has {}", operation,
          offsets.back(), shape.elements);
  return offsets;
}

Shape parts_shape(OpKind kind, Vector part, std::vector<size_t> counts, int member, int members) {
  Shape shape;
  shape.kind = kind;
  shape.dtype = shape.wire = part.dtype;
  if (counts.empty()) counts.assign(static_cast<size_t>(members), part.elements);
  const std::string_view operation = net::to_string(kind);
  for (size_t count : counts) {
    require(count <= SIZE_MAX - shape.elements, "{}'s sizes add up to more than can be counted", operation);
    shape.elements += count;
  }
  shape.offsets = checked_offsets(shape, counts, members);
  require(member < 0 || part.elements == counts[static_cast<size_t>(member)],
          "{}: the part of member {} has {} elements, its size is given as {}", operation, member, part.elements,
          counts[static_cast<size_t>(std::max(member, 0))]);
  return shape;
}

void require_whole(const Shape& shape, Vector vector) {
  require(vector.elements == shape.elements && vector.dtype == shape.dtype,
          "{}: the root's vector has {} x {} where all parts have {} x {}", net::to_string(shape.kind), vector.elements,
          to_string(vector.dtype), shape.elements, to_string(shape.dtype));
}

}  // namespace virga::collective
