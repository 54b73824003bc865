#pragma once

#include <algorithm>
#include <bit>
#include <vector>

// Trees over the members of a group: pure index arithmetic, no messages.
namespace virga::pattern {

// The binomial tree. Members are told by their distance behind the root, counted around the group. The parent of d is d
// without its lowest bit; d holds the subtree of distances [d, end(d)).
struct BinomialTree {
  int size;

  // Children of the root: ceil(log2 size).
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

// The binary tree whose in-order walk is 0, 1, ..., size - 1: what stands left of a position comes before it, what
// stands right of it after it. Even positions are leaves, odd ones are not. Counted from 1, a position of height h is a
// multiple of 2^h; where size + 1 is no power of two, the path along the right is short of some heights.
struct InOrderTree {
  int size;

  int root() const { return span(size) - 1; }
  // Edges between the root and the farthest position: floor(log2 size).
  int depth() const { return height(root()); }
  // Edges between a position and the farthest one below it.
  int height(int position) const { return std::countr_zero(static_cast<unsigned>(position + 1)); }
  // Edges between a position and the root.
  int edges(int position) const {
    int edges = 0;
    for (; position != root(); position = parent(position)) ++edges;
    return edges;
  }
  // Of any but the root.
  int parent(int position) const {
    const int step = 1 << height(position);
    const int above = ((position + 1 - step) | (2 * step)) - 1;
    return above < size ? above : position - step;
  }
  // In order; a position that is no leaf has a left child.
  std::vector<int> children(int position) const {
    const int half = (1 << height(position)) / 2;
    if (half == 0) return {};
    std::vector<int> children = {position - half};
    const int behind = size - 1 - position;
    if (behind > 0) children.push_back(position + std::min(half, span(behind)));
    return children;
  }

 private:
  // The largest power of two in a number above 0.
  static int span(int number) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(number))); }
};

}  // namespace virga::pattern
