// Broadcast by scattering shards and gathering them everywhere.
//
//   1  down a binomial tree: the member at distance d behind the root gets the shards of its subtree, keeps shard d and
//      passes the others on
//   2  around a ring, n-1 steps: every member passes on the shard that came last
//
// Rounds ceil(log2 n) + n-1; bytes at most 2(n-1)/n S per member: in step 1 the shards of its children's subtrees, the
// root (n-1)/n S; in step 2 all shards but that of the next member. Memory none. A lost peer: in step 1 those below it,
// in step 2 those behind it wait until the epoch fails or the deadline passes. Source: van de Geijn; Chan et al.,
// "Collective communication: theory, practice, and experience", 2007.

#include "virga/collective/broadcast/broadcast.h"
#include "virga/pattern/ring.h"
#include "virga/pattern/tree.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kScatter = 0, kGather = 1 };

// The bytes of shards [begin, end).
pattern::Range shards(size_t bytes, int count, int begin, int end) {
  return {pattern::shard(bytes, count, begin).begin, pattern::shard(bytes, count, end - 1).end};
}

struct Member {
  Operation& op;
  Group group;
  int root;
  int distance;
  net::Buffer data;

  int size() const { return group.size(); }
  Rank rank_at(int where) const { return group.rank((root + where) % size()); }
  net::Buffer part(int begin, int end) const {
    const pattern::Range range = shards(data.bytes, size(), begin, end);
    return data.part(range.begin, range.size());
  }
};

// A subtree's shards from parent to child, in slices. Both number them alike.
Task<void> hand_down(Member& member, int child) {
  const net::Buffer all = member.part(child, pattern::BinomialTree{member.size()}.end(child));
  const auto lane = [&](size_t i) {
    const pattern::Range range = pattern::slice(all.bytes, i, kBroadcastSliceBytes);
    const net::Buffer slice = all.part(range.begin, range.size());
    const uint64_t chunk = chunk_number(kScatter, i, 0);
    if (child != member.distance) return member.op.send(member.rank_at(child), chunk, slice);
    return member.op.receive(member.rank_at(pattern::BinomialTree{member.size()}.parent(child)), chunk, slice);
  };
  co_await run_lanes(pattern::slice_count(all.bytes, kBroadcastSliceBytes), kLanes, member.op.scope(), lane);
}

Task<void> gather(Member& member) {
  const pattern::Ring ring{member.size(), member.distance};
  for (int step = 0; step + 1 < ring.size; ++step) {
    const net::Buffer out = member.part(ring.gather_send(step), ring.gather_send(step) + 1);
    const net::Buffer in = member.part(ring.gather_receive(step), ring.gather_receive(step) + 1);
    const uint64_t chunk = chunk_number(kGather, 0, static_cast<unsigned>(step));
    std::vector<Task<void>> both;
    if (out.bytes > 0) both.push_back(member.op.send(member.rank_at(ring.next()), chunk, out));
    if (in.bytes > 0) both.push_back(member.op.receive(member.rank_at(ring.previous()), chunk, in));
    co_await when_all(std::move(both), &member.op.scope());
  }
}

Task<void> run(Operation& op, Group group, Rank root, net::Buffer data) {
  const int first = group.member(root), size = group.size();
  const int distance = pattern::distance_behind(first, group.member(op.comm().rank()), size);
  Member member{op, std::move(group), first, distance, data};
  if (distance > 0) co_await hand_down(member, distance);
  for (int child : pattern::BinomialTree{size}.children(distance)) co_await hand_down(member, child);
  co_await gather(member);
}

void charge_scatter(size_t bytes, int members, int root, Ledger& ledger) {
  const pattern::BinomialTree tree{members};
  ledger.phase();
  for (int step = 1 << tree.depth() >> 1; step > 0; step /= 2) {
    ledger.round();
    for (int parent = 0; parent + step < members; parent += 2 * step) {
      const int child = parent + step;
      const size_t part = shards(bytes, members, child, tree.end(child)).size();
      ledger.send((root + parent) % members, (root + child) % members, part,
                  pattern::slice_count(part, kBroadcastSliceBytes));
    }
  }
}

void charge(size_t bytes, int members, int root, Ledger& ledger) {
  charge_scatter(bytes, members, root, ledger);
  ledger.phase();
  for (int step = 0; step + 1 < members; ++step) {
    ledger.round();
    for (int distance = 0; distance < members; ++distance) {
      const pattern::Ring ring{members, distance};
      const size_t part = pattern::shard(bytes, members, ring.gather_send(step)).size();
      ledger.send((root + distance) % members, (root + ring.next()) % members, part, part > 0 ? 1 : 0);
    }
  }
}

}  // namespace

const BroadcastAlgorithm broadcast_scatter_allgather{"scatter_allgather", run, charge};

}  // namespace virga::collective
