// Barrier by dissemination.
//
// In round r every member tells the one 2^r ahead that it, and all it has heard of, are here.
// Steps ceil(log2 n); bytes 0 (headers only); memory none. A lost peer: every member that waits for it, directly or
// through others, fails with the epoch's first error. Source: Hensgen, Finkel, Manber, "Two algorithms for barrier
// synchronization", 1988.

#include "virga/collective/algorithm.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) {
  const int n = request.group.size(), me = request.me(op);
  const net::ConstBuffer nothing;
  const net::Buffer no_room;
  unsigned round = 0;
  for (int distance = 1; distance < n; distance *= 2, ++round) {
    const Rank ahead = request.group.rank((me + distance) % n), behind = request.group.rank((me - distance + n) % n);
    const uint64_t chunk = chunk_number(request.phase, 0, round);
    co_await when_both(op.send(ahead, chunk, nothing), op.receive(behind, chunk, no_room), &op.scope());
  }
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  ledger.phase();
  for (int distance = 1; distance < n; distance *= 2) {
    ledger.round();
    for (int member = 0; member < n; ++member) ledger.send(member, (member + distance) % n, 0);
  }
}

}  // namespace

const Algorithm barrier_dissemination{OpKind::kBarrier, "dissemination", run, charge};

}  // namespace virga::collective
