#pragma once

#include <vector>

#include "virga/collective/algorithm.h"
#include "virga/collective/binomial.h"

namespace virga::collective {

// A member in the binomial tree along which gather and scatter move parts, each subtree's at once. Its memory has the
// parts of its subtree in the order of distance behind the root; the root's is the whole vector, in the order of
// members. Where a subtree goes around the end of the group its parts are two messages: for the root they are the last
// ones of the vector and the first.
class PartTree {
 public:
  struct Message {
    Rank peer;
    uint64_t chunk;
    Vector vector;
  };

  // `whole` is the root's vector, `part` this member's own part: a leaf needs no other memory.
  PartTree(const Request& request, int me, Vector whole, Vector part);

  bool is_leaf() const { return distance_ > 0 && tree_.children(distance_).empty(); }
  // In this member's memory.
  Vector own_part() const;
  // What passes along the edges; children with large subtrees first.
  std::vector<Message> with_children() const;
  std::vector<Message> with_parent() const;

 private:
  Vector at(pattern::Range range) const;
  void add(int subtree, int peer, std::vector<Message>& messages) const;

  const Request& request_;
  const pattern::BinomialTree tree_;
  const int distance_;
  const pattern::Range first_;  // of the whole vector: what the memory begins with; before that is what comes behind it
  const Scratch scratch_;
  Vector memory_;
};

// Whether it may be used: nothing is cut into slices, so half of all parts may be in one member's memory. Where parts
// are long what messages cost by themselves is little, and the root's link carries as many bytes either way.
inline bool fits_part_tree(const Shape& shape) { return shape.bytes() <= size_t{64} << 20; }

// Enters what passes along the edges, and what those that are no leaves copy.
void charge_part_tree(const Shape& shape, Towards end, Ledger& ledger);

}  // namespace virga::collective
