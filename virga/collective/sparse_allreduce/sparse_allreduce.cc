// The operation sparse_allreduce: what its request is.

#include "virga/collective/sparse_allreduce/sparse_allreduce.h"

#include "virga/codec/density.h"

namespace virga::collective {
namespace {

Shape shape_of(size_t elements, const SparseOptions& options, int members) {
  sparse_format(elements, options.density, options.value_dtype);  // throws on options that can't be followed
  require(options.reduction == Reduction::kSum || options.reduction == Reduction::kAverage,
          "a sparse allreduce sums or averages; it can't take the {}", net::to_string(options.reduction));
  Shape shape;
  shape.kind = OpKind::kSparseAllreduce;
  shape.elements = elements;
  shape.density = options.density;
  shape.wire = options.value_dtype;
  set_reduction(shape, options.reduction, members);
  return shape;
}

pattern::Range residual_of(const Algorithm& algorithm, const Shape& shape, int member) {
  return algorithm.residual == nullptr ? pattern::Range{0, shape.elements} : algorithm.residual(shape, member);
}

}  // namespace

codec::SparseFormat sparse_format(size_t n, double density, DType value_dtype) {
  return codec::SparseFormat(n, codec::k_for_density(n, density), value_dtype);
}

pattern::Range residual_range(std::string_view algorithm, const cluster::Topology& layout, int member,
                              size_t elements) {
  Shape shape;
  shape.kind = OpKind::kSparseAllreduce;
  shape.elements = elements;
  shape.layout = std::make_shared<const cluster::Topology>(layout);
  return residual_of(find_algorithm(shape.kind, algorithm), shape, member);
}

Task<void> sparse_allreduce(Comm& comm, Group group, Vector data, SparseOptions options, Selector& selector,
                            Choice choice) {
  require(data.dtype == DType::kFloat32, "a sparse allreduce takes fp32, not {}", to_string(data.dtype));
  const Algorithm& algorithm = find_algorithm(OpKind::kSparseAllreduce, choice.algorithm);
  Shape shape = shape_of(data.elements, options, group.size());
  shape.layout = layout_of(comm, group);
  const size_t expected = residual_of(algorithm, shape, group.member(comm.rank())).size();
  require(data.phantom() || selector.feedback.residual().size() == expected,
          "{}: the residual of rank {} has {} elements where there should be {}", algorithm.name, comm.rank(),
          selector.feedback.residual().size(), expected);
  Request request{std::move(group), std::move(shape), data, data, &selector};
  return perform(comm, std::move(request), choice);
}

}  // namespace virga::collective
