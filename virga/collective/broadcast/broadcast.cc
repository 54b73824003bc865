// The operation: which algorithm it is, and that members agree on it.

#include "virga/collective/broadcast/broadcast.h"

#include <algorithm>

#include "virga/base/hash.h"

namespace virga::collective {
namespace {

const BroadcastAlgorithm& find(std::string_view name) {
  std::string known;
  for (const BroadcastAlgorithm* algorithm : broadcast_algorithms()) {
    if (algorithm->name == name) return *algorithm;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", algorithm->name);
  }
  fail(ErrorCode::kInvalidArgument, "unknown broadcast '{}'; known are {}", name, known);
}

}  // namespace

const std::vector<const BroadcastAlgorithm*>& broadcast_algorithms() {
  static const std::vector<const BroadcastAlgorithm*> algorithms = {
#define VIRGA_BROADCAST(name) &broadcast_##name,
#include "virga/collective/broadcast/list.def"
#undef VIRGA_BROADCAST
  };
  return algorithms;
}

const BroadcastAlgorithm& choose_broadcast(size_t bytes, int members, const LinkFigures& link) {
  const auto& all = broadcast_algorithms();
  if (members < 2) return *all[0];
  return **std::min_element(all.begin(), all.end(), [&](const BroadcastAlgorithm* a, const BroadcastAlgorithm* b) {
    return a->seconds(bytes, members, link) < b->seconds(bytes, members, link);
  });
}

Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data, std::string_view algorithm) {
  require(group.contains(root), "broadcast from rank {}, which is no member of the group", root);
  const BroadcastAlgorithm& chosen =
      algorithm.empty() ? choose_broadcast(data.bytes, group.size(), kOrdinaryLink) : find(algorithm);
  cluster::OpDescriptor descriptor{net::OpKind::kBroadcast, DType::kByte, data.bytes, root};
  descriptor.options = fnv1a(chosen.name);
  return comm.perform(group, descriptor, [&](Operation& op) { return chosen.run(op, group, root, data); });
}

}  // namespace virga::collective
