#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "virga/cluster/topology.h"
#include "virga/collective/vector.h"
#include "virga/kernel/reduce.h"
#include "virga/net/header.h"

namespace virga::collective {

using net::OpKind;
using net::Reduction;

// Everything that a collective's cost and its messages depend on: what must be equal on all members. Members are told
// by their position in the group.
struct Shape {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kFloat32;
  size_t elements = 0;
  // Where the part of each member begins, and the end of the last one; empty: shards of equal size (pattern::shard). In
  // an alltoall part i * members() + j is what member i sends to member j.
  std::vector<size_t> offsets;
  std::vector<std::vector<int>> graph;  // neighbour exchange: whom each member sends to
  int root = -1;
  Reduction reduction = Reduction::kSum;
  int divisor = 1;                       // by which the result is divided: the number of vectors in an average
  DType wire = DType::kFloat32;          // what travels; the same as dtype where nothing is converted
  double density = 1;                    // sparse: kept / all
  size_t slice_bytes = size_t{1} << 20;  // how the vector is cut for the wire
  std::shared_ptr<const cluster::Topology> layout;  // of members: which share a host

  int members() const { return layout->world_size(); }
  size_t bytes() const { return elements * size_of(dtype); }
  // At least one, so that it can be divided by.
  size_t slice_elements() const { return std::max<size_t>(slice_bytes / size_of(dtype), 1); }
  pattern::Range part(int index) const {
    if (offsets.empty()) return pattern::shard(elements, members(), index);
    return {offsets[static_cast<size_t>(index)], offsets[static_cast<size_t>(index) + 1]};
  }
  // The elements of the parts of members [begin, end), which lie side by side.
  pattern::Range parts(int begin, int end) const {
    return begin < end ? pattern::Range{part(begin).begin, part(end - 1).end} : pattern::Range{};
  }
  size_t part_bytes(int index) const { return part(index).size() * size_of(dtype); }
  bool converts() const { return wire != dtype; }
  // What happens to two elements that meet.
  kernel::ReduceOp reduce_op() const;

  // Equal only if everything that no field of net::Header tells is (layouts apart), for OpDescriptor::options.
  uint64_t fingerprint() const;
};

// Says that the vectors of `members` are reduced. Throws kInvalidArgument for bytes, which can't be.
void set_reduction(Shape& shape, Reduction reduction, int members);

// The offsets of the parts that members give or get, from their sizes in elements; none for none. Throws
// kInvalidArgument if there is not one for each of `members`, or if they don't add up to shape.elements.
std::vector<size_t> checked_offsets(const Shape& shape, const std::vector<size_t>& counts, int members);

// What a member's part of a larger vector says of it: for gather and scatter. Without counts all parts are as long.
Shape parts_shape(OpKind kind, Vector part, std::vector<size_t> counts, int member, int members);
// Throws kInvalidArgument unless the vector has the shape's elements and dtype.
void require_whole(const Shape& shape, Vector vector);

}  // namespace virga::collective
