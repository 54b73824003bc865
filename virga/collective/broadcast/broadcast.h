#pragma once

#include <string_view>
#include <vector>

#include "virga/collective/cost.h"
#include "virga/collective/vector.h"

namespace virga::collective {

// One way to broadcast. Members are told by their distance behind the root, counted around the group.
struct BroadcastAlgorithm {
  std::string_view name;
  Task<void> (*run)(Operation& op, Group group, Rank root, net::Buffer data);
  Sent (*sent)(size_t bytes, int members, int distance);
  double (*seconds)(size_t bytes, int members, const LinkFigures& link);  // members >= 2, one a host
};

// All ways there are.
const std::vector<const BroadcastAlgorithm*>& broadcast_algorithms();

// The fastest by the formulas.
const BroadcastAlgorithm& choose_broadcast(size_t bytes, int members, const LinkFigures& link);

// Copies the root's bytes to every member. `data` has the same size on all; `root` is a world rank of the group.
// `algorithm` is the name of one, the same on all members; empty: the one that is fastest on an ordinary link. Throws
// kInvalidArgument before anything is sent: for a root that is no member, for an unknown name (known ones are listed).
Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data, std::string_view algorithm = {});

// What algorithms share: longer messages are cut into slices of this many bytes, so that one is passed on while the
// next one comes in.
constexpr size_t kBroadcastSliceBytes = size_t{256} << 10;

#define VIRGA_BROADCAST(name) extern const BroadcastAlgorithm broadcast_##name;
#include "virga/collective/broadcast/list.def"
#undef VIRGA_BROADCAST

}  // namespace virga::collective
