#include "virga/collective/part_tree.h"

#include <algorithm>
#include <array>

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

// In which round parts pass along an edge, on the way to the root. A child sends when it has heard of its own children.
// It may do so later where its parent waits for others. A message between hosts that can wait is entered in a round
// that has one that can't: rounds that are inside hosts only are not as long.
class Rounds {
 public:
  explicit Rounds(const Shape& shape) : shape_(shape), tree_{shape.members()}, round_(tree_.size) {
    std::vector<char> needed(static_cast<size_t>(count()));  // by round: whether a message between hosts can't wait
    for (int child = 1; child < tree_.size; ++child) {
      if (between_hosts(child) && tree_.height(child) == last(child)) needed[last(child)] = 1;
    }
    for (int child = tree_.size - 1; child > 0; --child) {
      int& round = round_[child];
      for (int below : tree_.children(child)) round = std::max(round, round_[below] + 1);
      if (!between_hosts(child)) continue;
      while (round < last(child) && !needed[round]) ++round;
    }
  }

  int count() const { return tree_.height(0); }
  int of(int child) const { return round_[child]; }
  // The root's farthest child, where it has a lower subtree than the next one, so that nobody waits for it; else 0.
  int unawaited() const {
    const int farthest = tree_.size > 1 ? tree_.children(0).front() : 0;
    return farthest > 0 && tree_.height(farthest) < last(farthest) ? farthest : 0;
  }

 private:
  int last(int child) const { return count() - tree_.edges(child); }
  bool between_hosts(int child) const {
    return shape_.layout->host_of(member_at(shape_, child)) !=
           shape_.layout->host_of(member_at(shape_, tree_.parent(child)));
  }

  const Shape& shape_;
  const BinomialTree tree_;
  std::vector<int> round_;  // by child
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
  const int n = shape.members();
  const Rounds rounds(shape);
  const int unawaited = rounds.unawaited();
  ledger.phase(static_cast<size_t>(n));  // nothing waits for a lane
  ledger.slice();
  for (int i = 0; i < std::max(rounds.count(), 1); ++i) {
    const int round = end == Towards::kRoot ? i : rounds.count() - 1 - i;
    ledger.round();
    for (int child = 1; child < n; ++child) {
      if (child != unawaited && rounds.of(child) == round) charge_edge(shape, child, end, ledger);
    }
    if (round <= 0) charge_copies(shape, ledger);
  }
  if (unawaited == 0) return;
  ledger.slice();  // beside that: all that it shares is the root's link
  charge_edge(shape, unawaited, end, ledger);
}

}  // namespace virga::collective
