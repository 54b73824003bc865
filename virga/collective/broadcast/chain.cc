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

net::Buffer part(net::Buffer data, pattern::Range range) {
  return {data.data == nullptr ? nullptr : data.data + range.begin, range.size()};
}

Task<void> pass_slice(Operation& op, Group group, pattern::Chain chain, net::Buffer slice, uint64_t chunk) {
  if (!chain.first()) co_await op.receive(group.rank(chain.previous()), chunk, slice);
  if (!chain.last()) {
    const net::ConstBuffer out{slice.data, slice.bytes};
    co_await op.send(group.rank(chain.next()), chunk, out);
  }
}

Task<void> pass_on(Operation& op, Group group, pattern::Chain chain, net::Buffer data) {
  const auto lane = [&](size_t i) {
    const net::Buffer slice = part(data, pattern::slice(data.bytes, i, kSliceBytes));
    return pass_slice(op, group, chain, slice, chunk_number(0, i, 0));
  };
  co_await run_lanes(pattern::slice_count(data.bytes, kSliceBytes), kLanes, op.scope(), lane);
}

}  // namespace

Task<void> broadcast(Comm& comm, Group group, Rank root, net::Buffer data) {
  require(group.contains(root), "broadcast from rank {}, which is no member of the group", root);
  cluster::OpDescriptor descriptor{net::OpKind::kBroadcast, DType::kByte, data.bytes, root};
  auto op = comm.begin(group, descriptor);
  Operation& running = *op;
  const pattern::Chain chain{group.size(), group.member(root), group.member(comm.rank())};
  return Operation::complete(std::move(op), pass_on(running, std::move(group), chain, data));
}

}  // namespace virga::collective
