// The operation: which algorithm it is, and that members agree on it.

#include "virga/collective/broadcast/broadcast.h"

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

const BroadcastAlgorithm& choose_broadcast(size_t bytes, const cluster::Topology& layout, int root,
                                           const Figures& figures) {
  const BroadcastAlgorithm* best = nullptr;
  double least = 0;
  for (const BroadcastAlgorithm* algorithm : broadcast_algorithms()) {
    Ledger ledger(layout, figures);
    algorithm->charge(bytes, layout.world_size(), root, ledger);
    const double seconds = ledger.seconds();
    if (best == nullptr || seconds < least) {
      best = algorithm;
      least = seconds;
    }
  }
  return *best;
}

Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data, std::string_view algorithm) {
  require(group.contains(root), "broadcast from rank {}, which is no member of the group", root);
  const BroadcastAlgorithm& chosen =
      algorithm.empty() ? choose_broadcast(data.bytes, comm.topology().of(group), group.member(root), kOrdinaryFigures)
                        : find(algorithm);
  cluster::OpDescriptor descriptor{net::OpKind::kBroadcast, DType::kByte, data.bytes, root};
  descriptor.options = fnv1a(chosen.name);
  return comm.perform(group, descriptor, [&](Operation& op) { return chosen.run(op, group, root, data); });
}

}  // namespace virga::collective
