// Allreduce on two binary trees, pipelined in slices: few rounds, and about as many bytes as a ring of many members.
//
//   1  up either tree half of the vector is reduced: a member adds what its children send to its own values
//   2  down the same tree finished slices are handed out, each as soon as the root has it
//
// A leaf has its half to pass once, others once for their parent and once for each of up to two children. So a member
// with children in one tree has none in the other: tree t has member m at position (m + t) mod n of the in-order tree,
// whose leaves are the even positions. With n even every member is a leaf of just one tree; with n odd member n-1 is a
// leaf of both, the others of one.
// Rounds 2 floor(log2 n) for the first slice; bytes (1 + c/2) S sent, and as many received, per member that has c
// children in all, S/2 less for a root, of which each tree has another: at most 2S. Memory two slices, since in each
// tree slices are half as long as elsewhere and kLanes / 2 of them are under way each way. Order of summation, either
// half: (left + own) + right, where left and right are what the children's subtrees come to; halves are rounded once at
// each member. Roots divide an average. Only for members of one host, or each of another: the trees would cross between
// hosts of several again and again. A lost peer: its parent and its children, the others through the epoch's first
// error. Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing 2009.

#include "virga/collective/algorithm.h"
#include "virga/collective/inputs.h"
#include "virga/collective/wire.h"
#include "virga/pattern/part_slices.h"
#include "virga/pattern/tree.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

constexpr int kTrees = 2;
enum Phase : unsigned { kReduce = 0, kBroadcast = 1 };

// The halves, each in slices. What both trees carry at once is one.
pattern::PartSlices slices_of(const Shape& shape) {
  std::vector<pattern::Range> halves;
  for (int tree = 0; tree < kTrees; ++tree) halves.push_back(pattern::shard(shape.elements, kTrees, tree));
  return {std::move(halves), std::max<size_t>(shape.slice_elements() / kTrees, 1)};
}

int position_of(int member, int tree, int members) { return (member + tree) % members; }
int member_at(int position, int tree, int members) { return (position + members - tree % members) % members; }

// A member's place in one tree.
struct Place {
  Operation& op;
  const Request& request;
  const pattern::PartSlices& slices;
  int number;  // of the tree

  const Shape& shape() const { return request.shape; }
  pattern::InOrderTree tree() const { return {shape().members()}; }
  int position() const { return position_of(request.me(op), number, shape().members()); }
  bool is_root() const { return position() == tree().root(); }
  std::vector<int> children() const { return tree().children(position()); }

  Rank rank_at(int where) const { return request.group.rank(member_at(where, number, shape().members())); }
  Vector slice(size_t i) const { return request.out.part(slices.at(number, i)); }
  uint64_t chunk(Phase phase, size_t i) const {
    return chunk_number(request.phase + phase, i, static_cast<unsigned>(number));
  }
};

// What the subtree comes to, in the place of this member's own values.
Task<void> add_up(const Place& place, size_t i) {
  const Vector own = place.slice(i);
  Inputs inputs(own);
  std::vector<Task<void>> arrivals;
  const auto add_child = [&](int child) {
    arrivals.push_back(place.op.receive(place.rank_at(child), place.chunk(kReduce, i), inputs.add_incoming().buffer()));
  };
  const std::vector<int> children = place.children();
  if (!children.empty()) add_child(children[0]);
  inputs.add_own();
  if (children.size() > 1) add_child(children[1]);
  co_await when_all(std::move(arrivals), &place.op.scope());
  const Shape& shape = place.shape();
  const bool divides = place.is_root() && shape.divisor > 1;
  const size_t bytes = reduced_bytes(inputs.count(), own.bytes()) + (divides ? divided_bytes(own.bytes()) : 0);
  co_await place.op.work(bytes, [&] {
    inputs.reduce_into(own, shape);
    if (!own.phantom() && divides) kernel::divide(shape.dtype, own.span(), shape.divisor);
  });
}

// The finished slice comes to where the subtree's sum lies, but only after that has left.
Task<void> reduce_slice(const Place& place, size_t i) {
  if (!place.children().empty()) co_await add_up(place, i);
  if (place.is_root()) co_return;
  const Rank parent = place.rank_at(place.tree().parent(place.position()));
  co_await place.op.send(parent, place.chunk(kReduce, i), place.slice(i).buffer());
}

Task<void> broadcast_slice(const Place& place, size_t i) {
  const uint64_t chunk = place.chunk(kBroadcast, i);
  const Vector slice = place.slice(i);
  if (!place.is_root()) {
    const Rank parent = place.rank_at(place.tree().parent(place.position()));
    co_await place.op.receive(parent, chunk, slice.buffer());
  }
  std::vector<Task<void>> sends;
  for (int child : place.children()) sends.push_back(place.op.send(place.rank_at(child), chunk, slice.buffer()));
  co_await when_all(std::move(sends), &place.op.scope());
}

Task<void> run_tree(Place place) {
  const auto up = [&](size_t i) { return reduce_slice(place, i); };
  const auto down = [&](size_t i) { return broadcast_slice(place, i); };
  co_await run_there_and_back(place.slices.count(place.number), place.shape().slice_bytes / kTrees, kLanes / kTrees,
                              place.tree().edges(place.position()), place.children().empty(), place.op.scope(), up,
                              down);
}

Task<void> run(Operation& op, Request request) {
  const pattern::PartSlices slices = slices_of(request.shape);
  std::vector<Task<void>> trees;
  for (int tree = 0; tree < kTrees; ++tree) {
    const Place place{op, request, slices, tree};
    trees.push_back(run_tree(place));
  }
  co_await when_all(std::move(trees), &op.scope());
}

// What a slice passes in one tree between the positions [begin, end) and their parents. Those are a tree all of whose
// leaves are as far from its top, so rounds are equally long for all in them.
struct Course {
  const Shape& shape;
  int number;
  int begin, end;

  pattern::InOrderTree tree() const { return {shape.members()}; }
  int at(int position) const { return member_at(position, number, shape.members()); }

  template <class Body>
  void for_each_edge(Body body) const {
    for (int position = begin; position < end; ++position) {
      if (position != tree().root()) body(position, tree().parent(position));
    }
  }
  int rounds() const {
    int highest = -1;
    for_each_edge([&](int position, int) { highest = std::max(highest, tree().height(position)); });
    return highest + 1;
  }
};

void charge_up(const Course& course, size_t bytes, Ledger& ledger) {
  const pattern::InOrderTree tree = course.tree();
  for (int height = 0; height < course.rounds(); ++height) {
    ledger.round();
    course.for_each_edge([&](int position, int parent) {
      if (tree.height(position) == height) ledger.send(course.at(position), course.at(parent), bytes);
    });
    for (int position = course.begin; position < course.end; ++position) {
      if (tree.height(position) != height + 1) continue;
      ledger.work(course.at(position), reduced_bytes(tree.children(position).size() + 1, bytes));
      const bool divides = position == tree.root() && course.shape.divisor > 1;
      if (divides) ledger.work(course.at(position), divided_bytes(bytes));
    }
  }
}

void charge_down(const Course& course, size_t bytes, Ledger& ledger) {
  const pattern::InOrderTree tree = course.tree();
  for (int height = course.rounds() - 1; height >= 0; --height) {
    ledger.round();
    course.for_each_edge([&](int position, int parent) {
      if (tree.height(position) == height) ledger.send(course.at(parent), course.at(position), bytes);
    });
  }
}

// The root and its left subtree are one course. So is its right subtree if it is as large as the left one; else it does
// not keep that waiting, and falls into courses in the same way.
void charge_tree(const Shape& shape, int number, size_t bytes, Ledger& ledger) {
  const int n = shape.members();
  const pattern::InOrderTree tree{n};
  for (int begin = 0, top = tree.root(); begin < n;) {
    const bool alike = n - top == 1 << tree.height(top);
    const Course course{shape, number, begin, alike ? n : top + 1};
    ledger.course();
    charge_up(course, bytes, ledger);
    charge_down(course, bytes, ledger);
    begin = course.end;
    if (begin < n) top = tree.children(top)[1];
  }
}

void charge(const Shape& shape, Ledger& ledger) {
  const pattern::PartSlices slices = slices_of(shape);
  ledger.phase(2 * kLanes);
  slices.for_equal([&](size_t index, size_t count) {
    ledger.slice(count);
    for (int tree = 0; tree < kTrees; ++tree) {
      const size_t bytes = slices.at(tree, index).size() * size_of(shape.dtype);
      if (bytes > 0) charge_tree(shape, tree, bytes, ledger);
    }
  });
}

bool fits(const Shape& shape) {
  const int hosts = shape.layout->host_count();
  return fits_no_conversion(shape) && (hosts == 1 || hosts == shape.members());
}

}  // namespace

const Algorithm allreduce_double_binary_tree{OpKind::kAllreduce, "double_binary_tree", run, charge, fits};

}  // namespace virga::collective
