#include "virga/collective/part_tree.h"

#include <algorithm>
#include <array>
#include <bit>

#include "virga/pattern/circulant.h"
#include "virga/pattern/ring.h"

namespace virga::collective {
namespace {

using pattern::BinomialTree;
using pattern::Range;

int member_at(const Shape& shape, int distance) { return (shape.root + distance) % shape.members(); }

// Where the parts of a subtree lie in the whole vector.
std::array<Range, 2> ranges_of(const Shape& shape, int subtree) {
  const int n = shape.members(), count = BinomialTree{n}.end(subtree) - subtree;
  const auto [first, second] = pattern::around(member_at(shape, subtree), count, n);
  return {shape.parts(first.begin, first.end), shape.parts(second.begin, second.end)};
}

size_t elements_of(const Shape& shape, int subtree) {
  const auto [first, second] = ranges_of(shape, subtree);
  return first.size() + second.size();
}

// In which round parts pass along an edge, on the way to the root: a child sends when it has heard of its own children.
// Rounds inside hosts are short, so that messages between hosts are entered by how many such they wait for, one after
// the other, in the last rounds.
class Rounds {
 public:
  explicit Rounds(const Shape& shape) : shape_(shape), tree_{shape.members()}, between_(tree_.size) {
    for (int child = tree_.size - 1; child > 0; --child) {
      int& above = between_[tree_.parent(child)];
      above = std::max(above, between_[child] + (between_hosts(child) ? 1 : 0));
    }
  }

  int count() const { return tree_.height(0); }
  int of(int child) const {
    return between_hosts(child) ? count() - between_[0] + between_[child] : tree_.height(child);
  }
  // Whether nobody waits for it where the tree is not full: what the root's farthest child hears, and what it sends if
  // its subtree is lower than that of the next one.
  bool is_beside(int child) const {
    const int farthest = static_cast<int>(std::bit_floor(static_cast<unsigned>(tree_.size)));
    return child > farthest || (child == farthest && tree_.height(farthest) + 1 < count());
  }

 private:
  bool between_hosts(int child) const {
    return shape_.layout->host_of(member_at(shape_, child)) !=
           shape_.layout->host_of(member_at(shape_, tree_.parent(child)));
  }

  const Shape& shape_;
  const BinomialTree tree_;
  std::vector<int> between_;  // by child: most edges between hosts one after the other below it
};

void charge_edge(const Shape& shape, int child, Towards end, Ledger& ledger) {
  const int below = member_at(shape, child), above = member_at(shape, BinomialTree{shape.members()}.parent(child));
  for (const Range& range : ranges_of(shape, child)) {
    if (range.size() == 0) continue;
    const size_t bytes = range.size() * size_of(shape.dtype);
    end == Towards::kRoot ? ledger.send(below, above, bytes) : ledger.send(above, below, bytes);
  }
}

void charge_copies(const Shape& shape, Ledger& ledger) {
  const BinomialTree tree{shape.members()};
  for (int distance = 0; distance < shape.members(); ++distance) {
    const int member = member_at(shape, distance);
    if (distance == 0 || tree.height(distance) > 0) ledger.work(member, 2 * shape.part_bytes(member));
  }
}

}  // namespace

PartTree::PartTree(const Request& request, int me, Vector whole, Vector part)
    : request_(request),
      tree_{request.shape.members()},
      distance_(pattern::distance_behind(request.shape.root, me, tree_.size)),
      first_(distance_ == 0 ? Range{0, whole.elements} : ranges_of(request.shape, distance_)[0]),
      scratch_(distance_ == 0 || is_leaf() ? 0 : elements_of(request.shape, distance_), part),
      memory_(distance_ == 0 ? whole
              : is_leaf()    ? part
                             : scratch_.vector()) {}

Vector PartTree::own_part() const { return at(request_.shape.part(member_at(request_.shape, distance_))); }

std::vector<PartTree::Message> PartTree::with_children() const {
  std::vector<int> children = tree_.children(distance_);
  std::ranges::stable_sort(children, std::greater{}, [&](int child) { return tree_.end(child) - child; });
  std::vector<Message> messages;
  for (int child : children) add(child, child, messages);
  return messages;
}

std::vector<PartTree::Message> PartTree::with_parent() const {
  std::vector<Message> messages;
  if (distance_ > 0) add(distance_, tree_.parent(distance_), messages);
  return messages;
}

Vector PartTree::at(Range range) const {
  const bool behind = range.begin < first_.begin;
  const size_t begin = behind ? first_.size() + range.begin : range.begin - first_.begin;
  return memory_.part({begin, begin + range.size()});
}

// Both sides number the messages alike.
void PartTree::add(int subtree, int peer, std::vector<Message>& messages) const {
  unsigned piece = 0;
  for (const Range& range : ranges_of(request_.shape, subtree)) {
    const uint64_t chunk = chunk_number(request_.phase, 0, piece++);
    const Rank rank = request_.group.rank(member_at(request_.shape, peer));
    if (range.size() > 0) messages.push_back({rank, chunk, at(range)});
  }
}

void charge_part_tree(const Shape& shape, Towards end, Ledger& ledger) {
  const Rounds rounds(shape);
  ledger.phase(static_cast<size_t>(shape.members()));  // nothing waits for a lane
  for (bool beside : {false, true}) {
    ledger.slice();
    for (int i = 0; i < std::max(rounds.count(), 1); ++i) {
      const int round = end == Towards::kRoot ? i : rounds.count() - 1 - i;
      ledger.round();
      for (int child = 1; child < shape.members(); ++child) {
        if (rounds.is_beside(child) == beside && rounds.of(child) == round) charge_edge(shape, child, end, ledger);
      }
      if (round <= 0 && !beside) charge_copies(shape, ledger);
    }
  }
}

}  // namespace virga::collective
