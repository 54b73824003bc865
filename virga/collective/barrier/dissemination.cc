// Barrier by dissemination.
//
// In round r every member tells the one 2^r ahead that it, and all it has heard of, are here.
// Steps ceil(log2 n); bytes 0 (headers only); memory none. A lost peer: every member that waits for it, directly or
// through others, fails with the epoch's first error. Source: Hensgen, Finkel, Manber, "Two algorithms for barrier
// synchronization", 1988.

#include "virga/collective/barrier/dissemination.h"

#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> disseminate(Operation& op, Group group) {
  const int n = group.size(), me = group.member(op.comm().rank());
  const net::ConstBuffer nothing;
  const net::Buffer no_room;
  unsigned round = 0;
  for (int distance = 1; distance < n; distance *= 2, ++round) {
    const Rank ahead = group.rank((me + distance) % n), behind = group.rank((me - distance + n) % n);
    const uint64_t chunk = chunk_number(0, 0, round);
    co_await when_both(op.send(ahead, chunk, nothing), op.receive(behind, chunk, no_room), &op.scope());
  }
}

}  // namespace

Task<void> barrier(Comm& comm, Group group) {
  return comm.perform(group, {net::OpKind::kBarrier, DType::kByte},
                      [&](Operation& op) { return disseminate(op, group); });
}

}  // namespace virga::collective
