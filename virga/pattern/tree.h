#pragma once

#include <bit>
#include <vector>

// Trees over the members of a group: pure index arithmetic, no messages.
namespace virga::pattern {

// The binomial tree. Members are told by their distance behind the root, counted around the group. The parent of d is d
// without its lowest bit; d holds the subtree of distances [d, end(d)).
struct BinomialTree {
  int size;

  // Edges between the root and the farthest member: ceil(log2 size).
  int depth() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))); }

  int parent(int distance) const { return distance & (distance - 1); }
  int end(int distance) const {
    const int beyond = distance + span(distance);
    return beyond < size ? beyond : size;
  }
  // Between the root and a distance.
  int edges(int distance) const { return std::popcount(static_cast<unsigned>(distance)); }
  // Edges between a distance and the farthest one in its subtree.
  int height(int distance) const {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(end(distance) - distance))) - 1;
  }
  // Largest subtree first.
  std::vector<int> children(int distance) const {
    std::vector<int> children;
    for (int step = span(distance) / 2; step > 0; step /= 2) {
      if (distance + step < size) children.push_back(distance + step);
    }
    return children;
  }

 private:
  // How many distances a whole subtree at this one would have: its lowest bit.
  int span(int distance) const { return distance == 0 ? 1 << depth() : distance & -distance; }
};

}  // namespace virga::pattern
