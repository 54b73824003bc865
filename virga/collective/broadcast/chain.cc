// Broadcast along a chain, pipelined in slices.
//
// The root sends slice after slice to the next member, which passes each on while the following one comes in.
// Rounds n-2+slices; bytes S sent per member (the last sends none); memory none. A lost peer: those behind it wait
// until the epoch fails or the deadline passes. Source: the pipelined chain, textbook; "linear pipelining" in Wang et
// al., CLUSTER 2016.

#include "virga/collective/broadcast/chain.h"

#include "virga/pattern/ring.h"

namespace virga::collective {
namespace {

constexpr size_t kSliceBytes = size_t{256} << 10;

Task<void> pass_slice(Operation& op, Group group, pattern::Chain chain, net::Buffer slice, uint64_t chunk) {
  if (!chain.first()) co_await op.receive(group.rank(chain.previous()), chunk, slice);
  if (!chain.last()) co_await op.send(group.rank(chain.next()), chunk, slice);
}

Task<void> pass_on(Operation& op, Group group, pattern::Chain chain, net::Buffer data) {
  const auto lane = [&](size_t i) {
    const pattern::Range range = pattern::slice(data.bytes, i, kSliceBytes);
    const net::Buffer slice = data.part(range.begin, range.size());
    return pass_slice(op, group, chain, slice, chunk_number(0, i, 0));
  };
  co_await run_lanes(pattern::slice_count(data.bytes, kSliceBytes), kLanes, op.scope(), lane);
}

}  // namespace

Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data, uint64_t layout) {
  require(group.contains(root), "broadcast from rank {}, which is no member of the group", root);
  cluster::OpDescriptor descriptor{net::OpKind::kBroadcast, DType::kByte, data.bytes, root};
  descriptor.options = layout;
  const pattern::Chain chain{group.size(), group.member(root), group.member(comm.rank())};
  return comm.perform(group, descriptor, [&](Operation& op) { return pass_on(op, group, chain, data); });
}

}  // namespace virga::collective
