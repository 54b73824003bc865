// Broadcast along a chain, pipelined in slices.
//
// The root sends slice after slice to the next member, which passes each on while the following one comes in.
// Rounds n-2+slices; bytes S sent per member (the last sends none); memory none. A lost peer: those behind it wait
// until the epoch fails or the deadline passes. Source: the pipelined chain, textbook; "linear pipelining" in Wang et
// al., CLUSTER 2016.

#include "virga/collective/broadcast/broadcast.h"
#include "virga/pattern/ring.h"

namespace virga::collective {
namespace {

Task<void> pass_slice(Operation& op, Group group, pattern::Chain chain, net::Buffer slice, uint64_t chunk) {
  if (!chain.first()) co_await op.receive(group.rank(chain.previous()), chunk, slice);
  if (!chain.last()) co_await op.send(group.rank(chain.next()), chunk, slice);
}

Task<void> run(Operation& op, Group group, Rank root, net::Buffer data) {
  const pattern::Chain chain{group.size(), group.member(root), group.member(op.comm().rank())};
  const auto lane = [&](size_t i) {
    const pattern::Range range = pattern::slice(data.bytes, i, kBroadcastSliceBytes);
    const net::Buffer slice = data.part(range.begin, range.size());
    return pass_slice(op, group, chain, slice, chunk_number(0, i, 0));
  };
  co_await run_lanes(pattern::slice_count(data.bytes, kBroadcastSliceBytes), kLanes, op.scope(), lane);
}

void charge(size_t bytes, int members, int root, Ledger& ledger) {
  for_equal_slices(bytes, kBroadcastSliceBytes, [&](size_t length, size_t count) {
    ledger.slice(count);
    for (int distance = 0; distance + 1 < members; ++distance) {
      ledger.round();
      ledger.send((root + distance) % members, (root + distance + 1) % members, length);
    }
  });
}

}  // namespace

const BroadcastAlgorithm broadcast_chain{"chain", run, charge};

}  // namespace virga::collective
