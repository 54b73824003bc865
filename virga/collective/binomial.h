#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "virga/collective/ledger.h"
#include "virga/pattern/tree.h"

namespace virga::collective {

enum class Towards { kRoot, kLeaves };

// Enters what passes along a binomial tree's edges, `count` times: edge(parent, child) enters one. Edges of one step,
// which span as many distances, are a round. The longest step is one edge only. Where the tree is not full nobody waits
// for it: what it carries shares the root's link with the rest, so it is a slice beside that.
template <class Edge>
void charge_tree(const pattern::BinomialTree& tree, Towards end, size_t count, Ledger& ledger, Edge edge) {
  const auto enter = [&](int step) {
    ledger.round();
    for (int parent = 0; parent + step < tree.size; parent += 2 * step) edge(parent, parent + step);
  };
  std::vector<int> steps;
  for (int step = 1; step < tree.size; step *= 2) steps.push_back(step);
  const bool full = std::has_single_bit(static_cast<unsigned>(tree.size));
  const int longest = full ? 0 : steps.back();
  if (!full) steps.pop_back();
  if (end == Towards::kLeaves) std::ranges::reverse(steps);
  ledger.slice(count);
  for (int step : steps) enter(step);
  if (full) return;
  ledger.slice(count);
  enter(longest);
}

}  // namespace virga::collective
