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

#include "virga/collective/algorithm.h"
#include "virga/collective/exchange.h"
#include "virga/pattern/ring.h"
#include "virga/pattern/tree.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kScatter = 0, kGather = 1 };

// The elements of shards [begin, end).
pattern::Range shards(size_t elements, int count, int begin, int end) {
  return {pattern::shard(elements, count, begin).begin, pattern::shard(elements, count, end - 1).end};
}

struct Member {
  Operation& op;
  const Request& request;
  int distance;

  int size() const { return request.group.size(); }
  Rank rank_at(int where) const { return request.group.rank((request.shape.root + where) % size()); }
  Vector part(int begin, int end) const { return request.out.part(shards(request.out.elements, size(), begin, end)); }
};

// A subtree's shards from parent to child, in slices. Both number them alike.
Task<void> hand_down(Member& member, int child) {
  const pattern::BinomialTree tree{member.size()};
  const auto pass = [&member, tree, child](Vector slice, size_t i) {
    const uint64_t chunk = chunk_number(member.request.phase + kScatter, i, 0);
    return child == member.distance ? member.op.receive(member.rank_at(tree.parent(child)), chunk, slice.buffer())
                                    : member.op.send(member.rank_at(child), chunk, slice.buffer());
  };
  return run_slices(member.op, member.part(child, tree.end(child)), member.request.shape.slice_elements(), pass);
}

Task<void> gather(Member& member) {
  const pattern::Ring ring{member.size(), member.distance};
  for (int step = 0; step + 1 < ring.size; ++step) {
    const Vector out = member.part(ring.gather_send(step), ring.gather_send(step) + 1);
    const Vector in = member.part(ring.gather_receive(step), ring.gather_receive(step) + 1);
    const uint64_t chunk = chunk_number(member.request.phase + kGather, 0, static_cast<unsigned>(step));
    co_await exchange(member.op, chunk, member.rank_at(ring.next()), out, member.rank_at(ring.previous()), in);
  }
}

Task<void> run(Operation& op, Request request) {
  const int size = request.group.size();
  Member member{op, request, pattern::distance_behind(request.shape.root, request.me(op), size)};
  if (member.distance > 0) co_await hand_down(member, member.distance);
  for (int child : pattern::BinomialTree{size}.children(member.distance)) co_await hand_down(member, child);
  co_await gather(member);
}

void charge_scatter(const Shape& shape, Ledger& ledger) {
  const int members = shape.members();
  const pattern::BinomialTree tree{members};
  ledger.phase();
  for (int step = 1 << tree.depth() >> 1; step > 0; step /= 2) {
    ledger.round();
    for (int parent = 0; parent + step < members; parent += 2 * step) {
      const int child = parent + step;
      const size_t part = shards(shape.elements, members, child, tree.end(child)).size();
      ledger.send((shape.root + parent) % members, (shape.root + child) % members, part * size_of(shape.dtype),
                  pattern::slice_count(part, shape.slice_elements()));
    }
  }
}

void charge(const Shape& shape, Ledger& ledger) {
  charge_scatter(shape, ledger);
  const int members = shape.members();
  ledger.phase();
  for (int step = 0; step + 1 < members; ++step) {
    ledger.round();
    for (int distance = 0; distance < members; ++distance) {
      const pattern::Ring ring{members, distance};
      const size_t part = pattern::shard(shape.elements, members, ring.gather_send(step)).size();
      ledger.send((shape.root + distance) % members, (shape.root + ring.next()) % members, part * size_of(shape.dtype),
                  part > 0 ? 1 : 0);
    }
  }
}

}  // namespace

const Algorithm broadcast_scatter_allgather{OpKind::kBroadcast, "scatter_allgather", run, charge};

}  // namespace virga::collective
