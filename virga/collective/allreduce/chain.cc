// Allreduce along a chain, pipelined in slices: reduce to member 0 and broadcast from it, both at the same time.
//
//   1  from member n-1 to member 0, slices are added up, as in the reduce
//   2  from member 0 to member n-1, finished slices are handed out, as in the broadcast, while others are added up
//
// Rounds 2(n-1) for the first slice; bytes 2S sent and received per member, S by members 0 and n-1: links carry both
// directions at once, so n = 2 takes S/b, more members 2S/b, b being a link's rate each way; memory a slice a lane, and
// 4(n-1) slices, but 128 MiB at most, of those that wait at the slowest link. Order of summation: member n-1 first,
// member 0 last; halves are rounded at each member. Member 0 divides an average. A lost peer: its neighbours, the
// others through the epoch's first error. Source: the pipelined chain, textbook; "linear pipelining" in Wang et al.,
// CLUSTER 2016.

#include "virga/collective/chain.h"

#include "virga/collective/wire.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kReduce = 0, kBroadcast = 1 };

struct Member {
  Operation& op;
  const Request& request;
  pattern::Chain chain;

  size_t length() const { return request.shape.slice_elements(); }
  size_t slices() const { return pattern::slice_count(request.out.elements, length()); }
  Vector slice(size_t i) const { return request.out.part(pattern::slice(request.out.elements, i, length())); }

  // What others send of a slice is at home only after this member's share of it has left, so both use the same memory.
  Task<void> reduce(size_t i) const {
    return reduce_along(op, request, chain, slice(i), i * length(), chunk_number(request.phase + kReduce, i, 0));
  }
  Task<void> broadcast(size_t i) const {
    return broadcast_along(op, request, chain, slice(i), chunk_number(request.phase + kBroadcast, i, 0));
  }
};

Task<void> run(Operation& op, Request request) {
  const Member member{op, request, {request.group.size(), 0, request.me(op)}};
  const auto reduce = [&](size_t i) { return member.reduce(i); };
  const auto broadcast = [&](size_t i) { return member.broadcast(i); };
  co_await run_there_and_back(member.slices(), request.shape.slice_bytes, kLanes, member.chain.distance(),
                              member.chain.last(), op.scope(), reduce, broadcast);
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase(2 * kLanes);
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    const size_t bytes = length * size_of(shape.dtype);
    ledger.slice(count);
    charge_reduce_along(shape, 0, bytes, ledger);
    charge_broadcast_along(shape, 0, bytes, ledger);
  });
}

}  // namespace

const Algorithm allreduce_chain{OpKind::kAllreduce, "chain", run, charge, fits_no_conversion};

}  // namespace virga::collective
