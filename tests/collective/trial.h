#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "virga/base/half.h"
#include "virga/cluster/sim_job.h"
#include "virga/collective/allgather/allgather.h"
#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/alltoall/alltoall.h"
#include "virga/collective/barrier/barrier.h"
#include "virga/collective/broadcast/broadcast.h"
#include "virga/collective/gather/gather.h"
#include "virga/collective/neighbor_exchange/neighbor_exchange.h"
#include "virga/collective/reduce/reduce.h"
#include "virga/collective/reduce_scatter/reduce_scatter.h"
#include "virga/collective/scatter/scatter.h"
#include "virga/collective/sparse_allreduce/sparse_allreduce.h"

// One call of one algorithm, whatever its operation is: how it is made, on which memory, and what must come out. The
// judge knows operations, not algorithms: whole numbers come to the same sum in any order.
namespace virga::collective::trial {

// Hosts of one size and of several, one rank to nine.
inline const std::vector<std::vector<int>> kLayouts = {{1},
                                                       {2},
                                                       {1, 1},
                                                       {3},
                                                       {2, 1},
                                                       {1, 1, 1},
                                                       {2, 2},
                                                       {1, 3},
                                                       {1, 1, 1, 1},
                                                       {5},
                                                       {1, 1, 1, 1, 1},
                                                       {2, 3},
                                                       {4, 2},
                                                       {1, 1, 1, 1, 1, 1},
                                                       {2, 2, 2},
                                                       {3, 1, 3},
                                                       {2, 2, 2, 1},
                                                       {4, 4},
                                                       {9},
                                                       {3, 2, 4},
                                                       {2, 3, 3, 1}};

inline int size_of_layout(const std::vector<int>& layout) { return std::accumulate(layout.begin(), layout.end(), 0); }

// How a test of one algorithm is called.
inline std::string test_name(const ::testing::TestParamInfo<const Algorithm*>& info) {
  return std::string(net::to_string(info.param->kind)) + "_" + std::string(info.param->name);
}

struct Trial {
  const Algorithm* algorithm;
  size_t elements;  // of the whole operation: of all parts, where there are parts
  int members;
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  bool uneven = false;  // parts of several sizes, some empty
  size_t slice_bytes = size_t{1} << 20;
  double density = 0.01;
  DType wire = DType::kFloat32;  // of sparse values

  std::string text() const {
    return fmt::format("{} {} of {} x {}, {} members, {}, root {}{}, slices of {} bytes",
                       net::to_string(algorithm->kind), algorithm->name, elements, to_string(dtype), members,
                       net::to_string(reduction), root, uneven ? ", uneven" : "", slice_bytes);
  }
  OpKind kind() const { return algorithm->kind; }
  Choice choice() const { return {algorithm->name, slice_bytes}; }
  bool in_place() const {
    return kind() == OpKind::kBroadcast || kind() == OpKind::kReduceScatter || kind() == OpKind::kAllgather ||
           kind() == OpKind::kAllreduce || kind() == OpKind::kSparseAllreduce;
  }
  bool has_root() const {
    return kind() == OpKind::kBroadcast || kind() == OpKind::kReduce || kind() == OpKind::kGather ||
           kind() == OpKind::kScatter;
  }
  // That are worth trying.
  std::set<int> roots() const {
    if (!has_root()) return {0};
    return {0, members / 2, members - 1};
  }
  bool reduces() const {
    return kind() == OpKind::kReduce || kind() == OpKind::kReduceScatter || kind() == OpKind::kAllreduce;
  }
  bool has_parts() const {
    return kind() == OpKind::kGather || kind() == OpKind::kScatter || kind() == OpKind::kReduceScatter ||
           kind() == OpKind::kAllgather || kind() == OpKind::kAlltoall;
  }

  // Sizes of `parts` parts that add up to `elements`; the first ones take what is left over, or all but every third are
  // empty and the middle one has most.
  std::vector<size_t> cut(size_t total, int parts) const {
    const auto n = static_cast<size_t>(parts);
    std::vector<size_t> sizes(n);
    for (size_t i = 0; i < n; ++i) sizes[i] = uneven ? (i % 3 == 1 ? total / n / 2 : 0) : total / n + (i < total % n);
    if (uneven) sizes[n / 2] += total - std::accumulate(sizes.begin(), sizes.end(), size_t{0});
    return sizes;
  }
  std::vector<size_t> counts() const { return cut(elements, members); }
  std::vector<std::vector<size_t>> table() const {
    std::vector<std::vector<size_t>> rows;
    for (size_t row : counts()) rows.push_back(cut(row, members));
    return rows;
  }
  // Member i sends to the next one, and to the third and the fourth after it; member 0 to nobody else.
  std::vector<std::vector<int>> graph() const {
    std::vector<std::vector<int>> all(static_cast<size_t>(members));
    for (int i = 0; i < members; ++i) {
      for (int step : {1, 3, 4}) {
        if (step < members && (i > 0 || step == 1)) all[static_cast<size_t>(i)].push_back((i + step) % members);
      }
    }
    return all;
  }
  std::vector<int> sources(int member) const {
    std::vector<int> found;
    const auto all = graph();
    for (int i = 0; i < members; ++i) {
      if (std::count(all[i].begin(), all[i].end(), member) > 0) found.push_back(i);
    }
    return found;
  }

  size_t in_elements(int member) const {
    switch (kind()) {
      case OpKind::kGather:
        return counts()[member];
      case OpKind::kScatter:
        return member == root ? elements : 0;
      case OpKind::kAlltoall:
        return counts()[member];
      default:
        return elements;
    }
  }
  size_t out_elements(int member) const {
    switch (kind()) {
      case OpKind::kReduce:
      case OpKind::kGather:
        return member == root ? elements : 0;
      case OpKind::kScatter:
        return counts()[member];
      case OpKind::kAlltoall: {
        size_t sum = 0;
        for (const auto& row : table()) sum += row[member];
        return sum;
      }
      case OpKind::kNeighborExchange:
        return sources(member).size() * elements;
      default:
        return elements;
    }
  }

  // The call itself. `out` is the vector that is worked on in place, where that is the way.
  Task<void> call(Comm& comm, Vector in, Vector out, Selector* selector = nullptr) const {
    const Group world = comm.topology().world();
    switch (kind()) {
      case OpKind::kBarrier:
        return barrier(comm, world);
      case OpKind::kBroadcast:
        return broadcast(comm, world, root, out, choice());
      case OpKind::kReduce:
        return reduce(comm, world, root, in, out, reduction, choice());
      case OpKind::kGather:
        return gather(comm, world, root, in, out, counts(), choice());
      case OpKind::kScatter:
        return scatter(comm, world, root, in, out, counts(), choice());
      case OpKind::kReduceScatter:
        return reduce_scatter(comm, world, out, reduction, counts(), choice());
      case OpKind::kAllgather:
        return allgather(comm, world, out, counts(), choice());
      case OpKind::kAllreduce:
        return allreduce(comm, world, out, {reduction, choice()});
      case OpKind::kAlltoall:
        return alltoall(comm, world, in, out, table(), choice());
      case OpKind::kNeighborExchange:
        return neighbor_exchange(comm, world, in, out, graph(), choice());
      case OpKind::kSparseAllreduce:
        return sparse_allreduce(comm, world, out, SparseOptions(density, wire, reduction), *selector, choice());
    }
    throw std::logic_error("no such operation");
  }

  // What the library makes of the call, for its charge.
  Shape shape(const cluster::Topology& layout) const {
    Shape shape;
    shape.kind = kind();
    shape.dtype = shape.wire = dtype;
    if (kind() == OpKind::kSparseAllreduce) {
      shape.wire = wire;
      shape.density = density;
    }
    shape.elements = kind() == OpKind::kBarrier ? 0 : elements;
    if (has_parts()) shape.offsets = checked_offsets(shape, counts(), members);
    if (kind() == OpKind::kAlltoall) {
      std::vector<size_t> all;
      for (const auto& row : table()) all.insert(all.end(), row.begin(), row.end());
      shape.offsets = checked_offsets(shape, all, members * members);
    }
    if (kind() == OpKind::kNeighborExchange) shape.graph = graph();
    if (has_root()) shape.root = root;
    if (reduces()) set_reduction(shape, reduction, members);
    shape.slice_bytes = slice_bytes;
    shape.layout = std::make_shared<const cluster::Topology>(layout);
    return shape;
  }

  // What element e of member m's input is, and what element e of its output must be.
  static int value(int member, size_t e) {
    return static_cast<int>((static_cast<size_t>(member) * 7 + e * 13 + e / 97) % 16) - 8;
  }
  double reduced(size_t e) const {
    int sum = 0, least = 100, most = -100;
    for (int i = 0; i < members; ++i) {
      sum += value(i, e);
      least = std::min(least, value(i, e));
      most = std::max(most, value(i, e));
    }
    if (reduction == Reduction::kMin) return least;
    if (reduction == Reduction::kMax) return most;
    if (reduction == Reduction::kSum) return sum;
    const bool whole = dtype == DType::kInt32 || dtype == DType::kInt64;
    if (whole) return sum / members;
    if (dtype == DType::kFloat64) return static_cast<double>(sum) / members;
    const float mean = static_cast<float>(sum) / static_cast<float>(members);
    if (dtype == DType::kFloat16) return half_to_float(float_to_half(mean));
    if (dtype == DType::kBFloat16) return bfloat16_to_float(float_to_bfloat16(mean));
    return mean;
  }
  size_t begin_of(int part) const {
    const auto sizes = counts();
    return std::accumulate(sizes.begin(), sizes.begin() + part, size_t{0});
  }
  int owner_of(size_t e) const {
    int owner = 0;
    const auto sizes = counts();
    for (size_t end = sizes[0]; end <= e; end += sizes[static_cast<size_t>(owner)]) ++owner;
    return owner;
  }
  // Lists, so that nothing is looked up anew for every element.
  std::vector<double> expected(int member) const {
    std::vector<double> all;
    const auto sizes = counts();
    const auto whole = [&](auto element) {
      for (size_t e = 0; e < elements; ++e) all.push_back(element(e));
    };
    switch (kind()) {
      case OpKind::kBroadcast:
        whole([&](size_t e) { return value(root, e); });
        break;
      case OpKind::kReduce:
        if (member == root) whole([&](size_t e) { return reduced(e); });
        break;
      case OpKind::kAllreduce:
        whole([&](size_t e) { return reduced(e); });
        break;
      case OpKind::kReduceScatter: {
        const size_t begin = begin_of(member), end = begin + sizes[member];
        whole([&](size_t e) { return e >= begin && e < end ? reduced(e) : value(member, e); });
        break;
      }
      case OpKind::kAllgather:
        for (int owner = 0; owner < members; ++owner) {
          const size_t begin = begin_of(owner);
          for (size_t e = begin; e < begin + sizes[owner]; ++e) all.push_back(value(owner, e));
        }
        break;
      case OpKind::kGather:
        for (int owner = 0; owner < members && member == root; ++owner) {
          for (size_t e = 0; e < sizes[owner]; ++e) all.push_back(value(owner, e));
        }
        break;
      case OpKind::kScatter:
        for (size_t e = 0; e < sizes[member]; ++e) all.push_back(value(root, begin_of(member) + e));
        break;
      case OpKind::kAlltoall: {
        const auto rows = table();
        for (int from = 0; from < members; ++from) {
          const size_t begin = std::accumulate(rows[from].begin(), rows[from].begin() + member, size_t{0});
          for (size_t e = begin; e < begin + rows[from][member]; ++e) all.push_back(value(from, e));
        }
        break;
      }
      case OpKind::kNeighborExchange:
        for (int source : sources(member)) whole([&](size_t e) { return value(source, e); });
        break;
      default:
        break;
    }
    return all;
  }
};

// Elements of any dtype, written and read as numbers.
class Memory {
 public:
  Memory(size_t elements, DType dtype) : dtype_(dtype), bytes_(elements * size_of(dtype)) {}

  void set(size_t e, double value) {
    switch (dtype_) {
      case DType::kFloat32:
        return put(e, static_cast<float>(value));
      case DType::kFloat64:
        return put(e, value);
      case DType::kFloat16:
        return put(e, float_to_half(static_cast<float>(value)));
      case DType::kBFloat16:
        return put(e, float_to_bfloat16(static_cast<float>(value)));
      case DType::kInt32:
        return put(e, static_cast<int32_t>(value));
      case DType::kInt64:
        return put(e, static_cast<int64_t>(value));
      case DType::kByte:
        return put(e, static_cast<int8_t>(value));
    }
  }
  double get(size_t e) const {
    switch (dtype_) {
      case DType::kFloat32:
        return at<float>(e);
      case DType::kFloat64:
        return at<double>(e);
      case DType::kFloat16:
        return half_to_float(at<uint16_t>(e));
      case DType::kBFloat16:
        return bfloat16_to_float(at<uint16_t>(e));
      case DType::kInt32:
        return at<int32_t>(e);
      case DType::kInt64:
        return static_cast<double>(at<int64_t>(e));
      case DType::kByte:
        return at<int8_t>(e);
    }
    return 0;
  }
  void fill(int member) {
    for (size_t e = 0; e < bytes_.size() / size_of(dtype_); ++e) set(e, Trial::value(member, e));
  }
  Vector vector() { return {bytes_.data(), bytes_.size() / size_of(dtype_), dtype_}; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class T>
  void put(size_t e, T value) {
    std::memcpy(bytes_.data() + e * sizeof(T), &value, sizeof(T));
  }
  template <class T>
  T at(size_t e) const {
    T value;
    std::memcpy(&value, bytes_.data() + e * sizeof(T), sizeof(T));
    return value;
  }

  DType dtype_;
  std::vector<std::byte> bytes_;
};

// What all members of a trial read and write.
class Memories {
 public:
  explicit Memories(const Trial& trial) : trial_(trial) {
    for (int member = 0; member < trial.members; ++member) {
      in_.emplace_back(trial.in_elements(member), trial.dtype).fill(member);
      out_.emplace_back(trial.out_elements(member), trial.dtype);
      if (trial.in_place()) out_.back().fill(member);
    }
    before_ = in_;
  }

  Task<void> call(Comm& comm) { return trial_.call(comm, in_[comm.rank()].vector(), out_[comm.rank()].vector()); }

  // Everybody's output is what it must be, and the input what it was.
  void expect_right() {
    for (int member = 0; member < trial_.members && trial_.kind() != OpKind::kBarrier; ++member) {
      const std::vector<double> expected = trial_.expected(member);
      ASSERT_EQ(expected.size(), out_[member].vector().elements);
      for (size_t e = 0; e < expected.size(); ++e) {
        ASSERT_EQ(out_[member].get(e), expected[e]) << "member " << member << ", element " << e;
      }
      ASSERT_EQ(in_[member].bytes(), before_[member].bytes()) << "the input of member " << member;
    }
  }

 private:
  const Trial trial_;
  std::vector<Memory> in_, out_, before_;
};

// Which wire dtypes and reductions an algorithm can be tried with.
inline bool fits(const Trial& trial, const cluster::Topology& layout) {
  return trial.algorithm->fits == nullptr || trial.algorithm->fits(trial.shape(layout));
}

}  // namespace virga::collective::trial
