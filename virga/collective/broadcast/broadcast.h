#pragma once

#include <string_view>
#include <vector>

#include "virga/collective/ledger.h"
#include "virga/collective/vector.h"

namespace virga::collective {

// One way to broadcast.
struct BroadcastAlgorithm {
  std::string_view name;
  Task<void> (*run)(Operation& op, Group group, Rank root, net::Buffer data);
  // Enters what all members send; they are told by their position in the group.
  void (*charge)(size_t bytes, int members, int root, Ledger& ledger);
};

// All ways there are.
const std::vector<const BroadcastAlgorithm*>& broadcast_algorithms();

// The fastest by the ledger, for members that share hosts as `layout` says.
const BroadcastAlgorithm& choose_broadcast(size_t bytes, const cluster::Topology& layout, int root,
                                           const Figures& figures);

// Copies the root's bytes to every member. `data` has the same size on all; `root` is a world rank of the group.
// `algorithm` is the name of one, the same on all members; empty: the one that is fastest on ordinary links. Throws
// kInvalidArgument before anything is sent: for a root that is no member, for an unknown name (known ones are listed).
Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data, std::string_view algorithm = {});

// What algorithms share: longer messages are cut into slices of this many bytes, so that one is passed on while the
// next one comes in.
constexpr size_t kBroadcastSliceBytes = size_t{256} << 10;

#define VIRGA_BROADCAST(name) extern const BroadcastAlgorithm broadcast_##name;
#include "virga/collective/broadcast/list.def"
#undef VIRGA_BROADCAST

}  // namespace virga::collective
