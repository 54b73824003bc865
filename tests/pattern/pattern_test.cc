#include <algorithm>
#include <bit>
#include <gtest/gtest.h>
#include <set>

#include "virga/pattern/doubling.h"
#include "virga/pattern/ring.h"
#include "virga/pattern/shards.h"
#include "virga/pattern/tree.h"

namespace virga::pattern {
namespace {

TEST(Shards, CoverEveryElementOnceAndDifferByOneAtMost) {
  for (size_t elements : {0, 1, 2, 5, 7, 64, 65537}) {
    for (int count = 1; count <= 9; ++count) {
      size_t end = 0, smallest = ~size_t{0}, largest = 0;
      for (int i = 0; i < count; ++i) {
        const Range range = shard(elements, count, i);
        EXPECT_EQ(range.begin, end);
        end = range.end;
        smallest = std::min(smallest, range.size());
        largest = std::max(largest, range.size());
      }
      EXPECT_EQ(end, elements);
      EXPECT_LE(largest - smallest, 1u);
    }
  }
}

TEST(BinomialTree, SubtreesAreRangesThatChildrenShareOut) {
  for (int size = 1; size <= 70; ++size) {
    const BinomialTree tree{size};
    EXPECT_EQ(tree.end(0), size);
    for (int distance = 0; distance < size; ++distance) {
      int end = tree.end(distance);  // children come from the back, so the last one begins right behind their parent
      for (int child : tree.children(distance)) {
        EXPECT_EQ(tree.parent(child), distance);
        EXPECT_EQ(tree.end(child), end);
        end = child;
      }
      EXPECT_EQ(end, distance + 1);
    }
  }
}

TEST(BinomialTree, EdgesAndHeightsAreThoseOfTheTree) {
  for (int size = 1; size <= 70; ++size) {
    const BinomialTree tree{size};
    std::vector<int> height(static_cast<size_t>(size));
    for (int distance = size - 1; distance > 0; --distance) {
      EXPECT_EQ(tree.edges(distance), tree.edges(tree.parent(distance)) + 1);
      int& parent = height[static_cast<size_t>(tree.parent(distance))];
      parent = std::max(parent, height[static_cast<size_t>(distance)] + 1);
    }
    for (int distance = 0; distance < size; ++distance) EXPECT_EQ(tree.height(distance), height[distance]);
    EXPECT_EQ(tree.edges(0), 0);
  }
}

TEST(BinomialTree, NobodyIsFartherFromTheRootThanItsDepth) {
  for (int size = 1; size <= 70; ++size) {
    const BinomialTree tree{size};
    int deepest = 0;
    for (int distance = 0; distance < size; ++distance) {
      int edges = 0;
      for (int at = distance; at > 0; at = tree.parent(at)) ++edges;
      deepest = std::max(deepest, edges);
    }
    EXPECT_LE(deepest, tree.depth());
    EXPECT_LT(1 << tree.depth(), 2 * size);
  }
}

TEST(InOrderTree, ChildrenShareOutWhatStandsBelowThem) {
  for (int size = 1; size <= 70; ++size) {
    const InOrderTree tree{size};
    EXPECT_EQ(1 << tree.depth(), static_cast<int>(std::bit_floor(static_cast<unsigned>(size))));
    int deepest = 0;
    // [begin, end) stands below `top`, itself included.
    const auto walk = [&](auto self, int top, int begin, int end) -> int {
      deepest = std::max(deepest, tree.edges(top));
      const std::vector<int> children = tree.children(top);
      int height = 0;
      for (int child : children) {
        EXPECT_EQ(tree.parent(child), top);
        const bool left = child < top;
        height = std::max(height, 1 + self(self, child, left ? begin : top + 1, left ? top : end));
      }
      EXPECT_EQ(children.size(), static_cast<size_t>(begin < top) + static_cast<size_t>(top + 1 < end));
      EXPECT_TRUE(std::ranges::is_sorted(children));
      EXPECT_EQ(tree.height(top), height);
      EXPECT_EQ(top % 2, height > 0 ? 1 : 0);
      return height;
    };
    walk(walk, tree.root(), 0, size);
    EXPECT_EQ(deepest, tree.depth());
  }
}

TEST(Slices, CoverEveryElementOnce) {
  for (size_t elements : {0, 1, 99, 100, 101, 1000}) {
    size_t end = 0;
    for (size_t i = 0; i < slice_count(elements, 100); ++i) {
      EXPECT_EQ(slice(elements, i, 100).begin, end);
      end = slice(elements, i, 100).end;
    }
    EXPECT_EQ(end, elements);
  }
}

// What a member sends in a step is what its next member receives, and each member ends with all segments.
TEST(Ring, SendsMatchReceives) {
  for (int n = 1; n <= 9; ++n) {
    for (int member = 0; member < n; ++member) {
      const Ring ring{n, member}, next{n, ring.next()};
      std::set<int> gathered = {member};
      for (int step = 0; step + 1 < n; ++step) {
        EXPECT_EQ(ring.reduce_send(step), next.reduce_receive(step));
        EXPECT_EQ(ring.gather_send(step), next.gather_receive(step));
        EXPECT_TRUE(gathered.contains(ring.gather_send(step)));
        gathered.insert(ring.gather_receive(step));
      }
      EXPECT_EQ(static_cast<int>(gathered.size()), n);
      if (n > 1) {
        EXPECT_EQ(ring.reduce_receive(n - 2), member);
      }
    }
  }
}

// Whoever takes part meets its partner, each knows twice as many after a step, in the end all, and nobody is left out.
TEST(Doubling, EveryoneHearsOfEveryone) {
  for (int n = 1; n <= 40; ++n) {
    const Doubling doubling{n};
    std::vector<std::set<int>> known(static_cast<size_t>(n));
    int folds = 0;
    for (int member = 0; member < n; ++member) {
      known[member].insert(member);
      if (doubling.has_folded(member)) known[member].insert(member + 1);
      if (!doubling.folds(member)) continue;
      EXPECT_TRUE(doubling.has_folded(member - 1));
      ++folds;
    }
    EXPECT_EQ(folds, doubling.folded());
    for (int distance = 1; distance < doubling.taking_part(); distance *= 2) {
      const auto before = known;
      for (int position = 0; position < doubling.taking_part(); ++position) {
        const int member = doubling.member_at(position), partner = doubling.partner(member, distance);
        EXPECT_FALSE(doubling.folds(member));
        EXPECT_EQ(doubling.partner(partner, distance), member);
        // What one of the two knows lies before what the other does, so "lower first" is the same order for both.
        EXPECT_EQ(*before[member].rbegin() < *before[partner].begin(), member < partner);
        known[member].insert(before[partner].begin(), before[partner].end());
      }
    }
    for (int position = 0; position < doubling.taking_part(); ++position) {
      EXPECT_EQ(static_cast<int>(known[doubling.member_at(position)].size()), n);
    }
  }
}

TEST(Chain, EveryMemberHasItsPlace) {
  for (int n = 1; n <= 5; ++n) {
    for (int root = 0; root < n; ++root) {
      int firsts = 0, lasts = 0;
      for (int member = 0; member < n; ++member) {
        const Chain chain{n, root, member};
        firsts += chain.first();
        lasts += chain.last();
        EXPECT_EQ((Chain{n, root, chain.next()}.previous()), member);
      }
      EXPECT_EQ(firsts, 1);
      EXPECT_EQ(lasts, 1);
      EXPECT_TRUE((Chain{n, root, root}.first()));
    }
  }
}

}  // namespace
}  // namespace virga::pattern
