// Allgather by direct exchange: every owner sends its shard to every other member.
//
// Rounds 1, in slices; bytes sent (n-1)/n S per member when all are owners; memory none; no arithmetic. A lost peer:
// those that wait for its shard fail with the epoch's first error.

#include "virga/collective/allgather/direct.h"

#include <vector>

#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

enum class Way { kSend, kReceive };

// Moves one owner's shard between this rank and `peer`, slice by slice.
Task<void> move_shard(Operation& op, unsigned phase, Rank peer, FloatVector shard, Way way) {
  const auto lane = [&op, phase, peer, shard, way](size_t i) {
    const FloatVector slice = shard.part(pattern::slice(shard.elements, i));
    const uint64_t chunk = chunk_number(phase, i, 0);
    return way == Way::kSend ? op.send(peer, chunk, slice.buffer()) : op.receive(peer, chunk, slice.buffer());
  };
  co_await run_lanes(pattern::slice_count(shard.elements), kLanes, op.scope(), lane);
}

}  // namespace

Task<void> allgather_direct(Operation& op, unsigned phase, Group group, int owners, FloatVector data) {
  const int n = group.size(), me = group.member(op.comm().rank());
  const auto shard = [&](int owner) { return data.part(pattern::shard(data.elements, owners, owner)); };
  std::vector<Task<void>> parts;
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n, from = (me - distance + n) % n;
    if (me < owners) parts.push_back(move_shard(op, phase, group.rank(to), shard(me), Way::kSend));
    if (from < owners) parts.push_back(move_shard(op, phase, group.rank(from), shard(from), Way::kReceive));
  }
  co_await when_all(std::move(parts), &op.scope());
}

Task<void> allgather(Comm& comm, Group group, FloatVector data) {
  return comm.perform(group, {net::OpKind::kAllgather, DType::kFloat32, data.elements},
                      [&](Operation& op) { return allgather_direct(op, 0, group, group.size(), data); });
}

}  // namespace virga::collective
