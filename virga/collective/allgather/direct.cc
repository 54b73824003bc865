// Allgather by direct exchange: every member sends its part to every other one, the nearest first, so that no receiver
// is everybody's first target.
//
// Rounds 1, in slices; bytes sent (n-1) times its part: (n-1)/n S per member when parts are equal; memory none; no
// arithmetic. A lost peer: those that wait for its part fail with the epoch's first error. One round instead of the
// ring's n-1: what small messages need, and what ranks of one host want, where every pair has its own way.

#include "virga/collective/algorithm.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

enum class Way { kSend, kReceive };

// Moves one member's part between this rank and `peer`.
Task<void> move_part(Operation& op, const Request& request, Rank peer, int owner, Way way) {
  const auto move = [&op, &request, peer, way](Vector slice, size_t i) {
    const uint64_t chunk = chunk_number(request.phase, i, 0);
    return way == Way::kSend ? op.send(peer, chunk, slice.buffer()) : op.receive(peer, chunk, slice.buffer());
  };
  return run_slices(op, request.out.part(request.shape.part(owner)), request.shape.slice_elements(), move);
}

Task<void> run(Operation& op, Request request) {
  const int n = request.group.size(), me = request.me(op);
  std::vector<Task<void>> parts;
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n, from = (me - distance + n) % n;
    parts.push_back(move_part(op, request, request.group.rank(to), me, Way::kSend));
    parts.push_back(move_part(op, request, request.group.rank(from), from, Way::kReceive));
  }
  co_await when_all(std::move(parts), &op.scope());
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  ledger.at_once(shape.members(), [&](int owner) {
    for_equal_slices(shape.part(owner).size(), shape.slice_elements(), [&](size_t length, size_t count) {
      ledger.slice(count);
      for (int other = 0; other < shape.members(); ++other) {
        if (other != owner) ledger.send(owner, other, length * size_of(shape.dtype));
      }
    });
  });
}

}  // namespace

const Algorithm allgather_direct{OpKind::kAllgather, "direct", run, charge};

}  // namespace virga::collective
