// Allgather on the circulant graph: any number of members in ceil(log2 n) rounds.
//
// In each round a member sends all parts that it has, or as many of them as are still wanted, to the member behind it
// for which they come next, and receives as many from the member as far ahead. What it has are the parts of members in
// a row, so that they lie side by side in the vector, but where the row goes around its end: at most two messages.
// Rounds ceil(log2 n); bytes received S less its own part, sent (n-1)/n S where parts are equal (else its own part in
// each round, and those behind it in fewer); memory none; no arithmetic. Not in slices: nothing waits for a part of a
// message, and every link is busy in every round. A lost peer: those it sends to, in the round it is missing; all
// others through the epoch's first error. Source: Bruck et al., "Efficient algorithms for all-to-all communications",
// 1997, with the distances of reduce_scatter/circulant.cc.

#include "virga/pattern/circulant.h"

#include "virga/collective/algorithm.h"
#include "virga/collective/exchange.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

using pattern::Blocks;
using pattern::Circulant;

std::array<Blocks, 2> sent(Circulant graph, int round) { return graph.blocks(0, graph.moved(round)); }
std::array<Blocks, 2> received(Circulant graph, int round) {
  return graph.blocks(graph.skip(round + 1), graph.moved(round));
}

struct Member {
  Operation& op;
  const Request& request;
  Circulant graph;

  Task<void> pass_on(int round) const {
    const Rank behind = request.group.rank(graph.behind(round)), ahead = request.group.rank(graph.ahead(round));
    std::vector<Task<void>> pieces;
    for (unsigned piece = 0; piece < 2; ++piece) {
      const Blocks goes = sent(graph, round)[piece], comes = received(graph, round)[piece];
      const Vector out = request.out.part(request.shape.parts(goes.begin, goes.end));
      const Vector in = request.out.part(request.shape.parts(comes.begin, comes.end));
      const uint64_t chunk = chunk_number(request.phase, static_cast<size_t>(round), piece);
      pieces.push_back(exchange(op, chunk, behind, out, ahead, in));
    }
    return when_all(std::move(pieces), &op.scope());
  }
};

Task<void> run(Operation& op, Request request) {
  const Member member{op, request, Circulant{request.group.size(), request.me(op)}};
  for (int round = member.graph.rounds() - 1; round >= 0; --round) co_await member.pass_on(round);
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  ledger.phase();
  for (int round = Circulant{n, 0}.rounds() - 1; round >= 0; --round) {
    ledger.round();
    for (int member = 0; member < n; ++member) {
      const Circulant graph{n, member};
      for (const Blocks& piece : sent(graph, round)) {
        const size_t elements = shape.parts(piece.begin, piece.end).size();
        ledger.send(member, graph.behind(round), elements * size_of(shape.dtype), elements > 0 ? 1 : 0);
      }
    }
  }
}

}  // namespace

const Algorithm allgather_circulant{OpKind::kAllgather, "circulant", run, charge};

}  // namespace virga::collective
