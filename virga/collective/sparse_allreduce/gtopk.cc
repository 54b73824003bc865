// gTop-k: up a tree, pairs of selections become one of the same size; down the tree, what is left reaches everybody.
//
//   1  every member selects its top k of residual + vector / n
//   2  up a binomial tree inside each host, then up one of the hosts' first members: a member adds each child's message
//      to its own, smallest subtree first, and keeps the k largest; the others, and what rounding to the wire takes off
//      those that it keeps, it gives back to its own residual
//   3  down the same trees: the k that member 0 is left with
//
// With m hosts of h ranks: rounds floor(log2 h) + floor(log2 m) up, ceil(log2 h) + ceil(log2 m) down; bytes p up for a
// member and p for each child down, m-1 times p each way between all hosts, where p = SparseFormat(S,
// k).payload_bytes(); memory 2 p and the entries of two messages, the residual (S). Order of summation: inside a host,
// then across hosts, pairs by distance 1, 2, 4, ...; of the two partial sums that meet, that of the lower members
// first. Nothing is lost: for every element what comes out and all residuals are together what they and the vectors
// were before, rounded in fp32 once where two meet and once where something is given back. But it moves: what a merge
// drops stays with the member that merged. A lost peer: those above it, then those below it, the others through the
// epoch's first error; the residuals are then those of a step under way, which ErrorFeedback::restore_last takes back.
// Source: Shi et al., "A distributed synchronous SGD algorithm with global top-k sparsification for low bandwidth
// networks", 2019. There a member puts back what is missing in the end, so that part of an entry is lost which is
// dropped in one merge and comes through in another.

#include "virga/collective/sparse_allreduce/selection.h"
#include "virga/pattern/tree.h"

namespace virga::collective {
namespace {

enum Phase : unsigned { kUp = 0, kDown = 1 };

// Binomial trees inside the hosts, rooted at their first members, which are a binomial tree themselves. A parent comes
// before its children.
struct HostTree {
  const cluster::Topology& layout;

  int first_of(int host) const { return layout.ranks_of(host).front(); }
  pattern::BinomialTree inside(int host) const { return {static_cast<int>(layout.ranks_of(host).size())}; }
  pattern::BinomialTree across() const { return {layout.host_count()}; }

  // Of all but member 0.
  int parent(int member) const {
    const int host = layout.host_of(member), local = layout.local_index(member);
    if (local == 0) return first_of(across().parent(host));
    return layout.ranks_of(host)[static_cast<size_t>(inside(host).parent(local))];
  }
  // In the order of the way down: on other hosts before those on its own, the largest subtree first.
  std::vector<int> children(int member) const {
    const int host = layout.host_of(member), local = layout.local_index(member);
    std::vector<int> all;
    if (local == 0) {
      for (int other : across().children(host)) all.push_back(first_of(other));
    }
    for (int child : inside(host).children(local)) all.push_back(layout.ranks_of(host)[static_cast<size_t>(child)]);
    return all;
  }
};

// Two messages are unpacked, added up, cut and packed.
size_t merge_bytes(const Shape& shape) { return 8 * sparse_format(shape).payload_bytes(); }

// `mine` becomes the k largest of both; the rest goes to the residual. A poisoned message stays one.
void merge(const Request& request, std::span<std::byte> mine, std::span<const std::byte> theirs) {
  const codec::SparseFormat format = sparse_format(request.shape);
  const codec::SparsePayload a = format.validate(mine), b = format.validate(theirs);
  if (a.finite() && b.finite()) {
    codec::Entries both = codec::sum(a.entries(), b.entries());
    const std::optional<codec::Entries> rest = codec::keep_largest(both, format.k(), format.value_dtype());
    if (rest && request.selector->feedback.give_back(*rest)) {
      return format.encode(both.indices, both.values, mine);
    }
  }
  format.encode_poison(mine);
}

// Member 0 ends with what the tree leaves.
Task<void> merge_up(Operation& op, const Request& request, const HostTree& tree, Vector mine) {
  const int me = request.me(op);
  const uint64_t chunk = chunk_number(request.phase + kUp, 0, 0);
  const Scratch theirs(mine.elements, mine);
  const std::vector<int> children = tree.children(me);
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    co_await op.receive(request.group.rank(*child), chunk, theirs.vector().buffer());
    co_await op.work(merge_bytes(request.shape), [&] {
      if (!request.phantom()) merge(request, mine.span(), theirs.vector().span());
    });
  }
  if (me > 0) co_await op.send(request.group.rank(tree.parent(me)), chunk, mine.buffer());
}

Task<void> pass_down(Operation& op, const Request& request, const HostTree& tree, Vector message) {
  const int me = request.me(op);
  const uint64_t chunk = chunk_number(request.phase + kDown, 0, 0);
  if (me > 0) co_await op.receive(request.group.rank(tree.parent(me)), chunk, message.buffer());
  for (int child : tree.children(me)) co_await op.send(request.group.rank(child), chunk, message.buffer());
}

Task<void> run(Operation& op, Request request) {
  if (request.shape.elements == 0) co_return;
  const HostTree tree{*request.shape.layout};
  const Scratch message(sparse_format(request.shape).payload_bytes(), DType::kByte, request.out);
  co_await select(op, request, message.vector().buffer());
  co_await merge_up(op, request, tree, message.vector());
  co_await pass_down(op, request, tree, message.vector());
  const std::vector<Vector> only = {message.vector()};
  co_await add_up(op, request, only);
}

// By member: the round in which it sends, not before its children have. A first member that need not hurry waits until
// all hosts are done inside: the ledger takes the members of a round for equally far apart.
std::vector<int> rounds_up(const Shape& shape) {
  const HostTree tree{*shape.layout};
  int inside = 0, all = 0;
  for (int host = 0; host < tree.layout.host_count(); ++host) {
    inside = std::max(inside, tree.inside(host).height(0));
    all = std::max(all, tree.inside(host).height(0) + tree.across().edges(host));
  }
  std::vector<int> rounds;
  for (int member = 0; member < shape.members(); ++member) {
    const int host = tree.layout.host_of(member), local = tree.layout.local_index(member);
    const int across = std::min(inside + tree.across().height(host), all - tree.across().edges(host));
    rounds.push_back(local == 0 ? across : tree.inside(host).height(local));
  }
  return rounds;
}

// By member: the round in which it receives, -1 for member 0. A parent sends to one child after the other.
std::vector<int> rounds_down(const Shape& shape) {
  const HostTree tree{*shape.layout};
  std::vector<int> rounds(static_cast<size_t>(shape.members()), -1);
  for (int member = 0; member < shape.members(); ++member) {
    int round = rounds[static_cast<size_t>(member)];
    for (int child : tree.children(member)) rounds[static_cast<size_t>(child)] = ++round;
  }
  return rounds;
}

// Enters the edge between a member and its parent in the round of the member.
template <class Enter>
void charge_edges(const std::vector<int>& rounds, Ledger& ledger, Enter enter) {
  ledger.phase();
  const int last = rounds.size() < 2 ? -1 : *std::max_element(rounds.begin() + 1, rounds.end());
  for (int round = 0; round <= last; ++round) {
    ledger.round();
    for (size_t member = 1; member < rounds.size(); ++member) {
      if (rounds[member] == round) enter(static_cast<int>(member));
    }
  }
}

void charge(const Shape& shape, Ledger& ledger) {
  if (shape.elements == 0) return;
  const HostTree tree{*shape.layout};
  const size_t bytes = sparse_format(shape).payload_bytes();
  charge_select(shape, ledger);
  charge_edges(rounds_up(shape), ledger, [&](int member) {
    ledger.send(member, tree.parent(member), bytes);
    ledger.work(tree.parent(member), merge_bytes(shape));
  });
  charge_edges(rounds_down(shape), ledger, [&](int member) { ledger.send(tree.parent(member), member, bytes); });
  charge_add_up(shape, 1, ledger);
}

}  // namespace

const Algorithm sparse_allreduce_gtopk{OpKind::kSparseAllreduce, "gtopk", run, charge};

}  // namespace virga::collective
