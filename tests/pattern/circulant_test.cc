#include "virga/pattern/circulant.h"

#include <gtest/gtest.h>
#include <map>

namespace virga::pattern {
namespace {

int rounds_needed(int members) {
  int rounds = 0;
  for (int reached = 1; reached < members; reached *= 2) ++rounds;
  return rounds;
}

TEST(Circulant, DistancesAreHalvedAndRoundedUp) {
  for (int n = 1; n <= 64; ++n) {
    const Circulant graph{n, 0};
    EXPECT_EQ(graph.rounds(), rounds_needed(n));
    int distance = n;
    for (int round = 0; round <= graph.rounds(); ++round) {
      EXPECT_EQ(graph.skip(round), distance) << n << ", round " << round;
      distance = distance / 2 + distance % 2;
    }
    EXPECT_EQ(graph.skip(graph.rounds()), 1);
  }
}

TEST(Circulant, WhoIsAheadHasOneBehind) {
  for (int n = 1; n <= 64; ++n) {
    for (int member = 0; member < n; ++member) {
      const Circulant graph{n, member};
      for (int round = 0; round < graph.rounds(); ++round) {
        EXPECT_EQ((Circulant{n, graph.ahead(round)}.behind(round)), member);
      }
    }
  }
}

// contributions[m][b]: whose values member m has added up for block b, and how often.
using Contributions = std::map<int, int>;

TEST(Circulant, ReduceScatterAddsUpEveryMemberOnce) {
  for (int n = 1; n <= 64; ++n) {
    std::vector<std::vector<Contributions>> sums(n, std::vector<Contributions>(n));
    for (int m = 0; m < n; ++m) {
      for (int b = 0; b < n; ++b) sums[m][b][m] = 1;
    }
    std::vector<int> sent(n);
    for (int round = 0; round < Circulant{n, 0}.rounds(); ++round) {
      const auto before = sums;
      for (int m = 0; m < n; ++m) {
        const Circulant graph{n, m};
        const int to = graph.ahead(round);
        for (int i = 0; i < graph.moved(round); ++i) {
          const int b = graph.block(graph.skip(round + 1) + i);
          EXPECT_EQ(b, (Circulant{n, to}.block(i)));  // both name the block alike
          for (const auto& [who, times] : before[m][b]) sums[to][b][who] += times;
          ++sent[m];
        }
      }
    }
    for (int m = 0; m < n; ++m) {
      Contributions all;
      for (int who = 0; who < n; ++who) all[who] = 1;
      EXPECT_EQ(sums[m][m], all) << n << " members, block " << m;
      EXPECT_EQ(sent[m], n - 1);
    }
  }
}

TEST(Circulant, AllgatherBringsEveryBlockOnce) {
  for (int n = 1; n <= 64; ++n) {
    std::vector<std::vector<int>> has(n, std::vector<int>(n));  // has[m][b]: how often block b has come to member m
    for (int m = 0; m < n; ++m) has[m][m] = 1;
    for (int round = Circulant{n, 0}.rounds() - 1; round >= 0; --round) {
      const auto before = has;
      for (int m = 0; m < n; ++m) {
        const Circulant graph{n, m};
        const int to = graph.behind(round);
        for (int i = 0; i < graph.moved(round); ++i) {
          const int b = graph.block(i);
          EXPECT_EQ(before[m][b], 1) << "sent before it came";
          EXPECT_EQ(b, (Circulant{n, to}.block(graph.skip(round + 1) + i)));
          ++has[to][b];
        }
      }
    }
    for (int m = 0; m < n; ++m) EXPECT_EQ(has[m], std::vector<int>(n, 1)) << n << " members, member " << m;
  }
}

TEST(Circulant, BlocksInARowAreThoseOfTheirDistances) {
  for (int n = 1; n <= 12; ++n) {
    for (int member = 0; member < n; ++member) {
      const Circulant graph{n, member};
      for (int distance = 0; distance < n; ++distance) {
        for (int count = 0; count <= n; ++count) {
          std::vector<int> expected, actual;
          for (int i = 0; i < count; ++i) expected.push_back((member + distance + i) % n);
          for (const Blocks& piece : graph.blocks(distance, count)) {
            for (int b = piece.begin; b < piece.end; ++b) actual.push_back(b);
          }
          EXPECT_EQ(actual, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace virga::pattern
