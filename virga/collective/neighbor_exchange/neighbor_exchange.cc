// The operation neighbor_exchange: what its request is.

#include "virga/collective/neighbor_exchange/neighbor_exchange.h"

#include <algorithm>

namespace virga::collective {
namespace {

void check_graph(const std::vector<std::vector<int>>& graph, int members) {
  require(graph.size() == static_cast<size_t>(members), "a graph of {} members for a group of {}", graph.size(),
          members);
  for (int i = 0; i < members; ++i) {
    std::vector<int> targets = graph[static_cast<size_t>(i)];
    std::sort(targets.begin(), targets.end());
    require(std::adjacent_find(targets.begin(), targets.end()) == targets.end(),
            "a graph in which member {} sends to another one twice", i);
    for (int target : targets) {
      require(target >= 0 && target < members && target != i, "a graph in which member {} sends to {}, of {}", i,
              target, members);
    }
  }
}

}  // namespace

std::vector<int> neighbors_before(const Shape& shape, int member) {
  std::vector<int> sources;
  for (int i = 0; i < shape.members(); ++i) {
    const std::vector<int>& targets = shape.graph[static_cast<size_t>(i)];
    if (std::find(targets.begin(), targets.end(), member) != targets.end()) sources.push_back(i);
  }
  return sources;
}

Task<void> neighbor_exchange(Comm& comm, Group group, Vector in, Vector out, std::vector<std::vector<int>> graph,
                             Choice choice) {
  check_graph(graph, group.size());
  Shape shape;
  shape.kind = OpKind::kNeighborExchange;
  shape.dtype = shape.wire = in.dtype;
  shape.elements = in.elements;
  shape.graph = std::move(graph);
  shape.layout = layout_of(comm, group);
  const size_t sources = neighbors_before(shape, group.member(comm.rank())).size();
  require(out.elements == sources * in.elements && out.dtype == in.dtype,
          "neighbor_exchange: room for {} x {} where {} neighbours send {} x {} each", out.elements,
          to_string(out.dtype), sources, in.elements, to_string(in.dtype));
  return perform(comm, {std::move(group), std::move(shape), in, out}, choice);
}

}  // namespace virga::collective
