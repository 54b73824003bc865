// Allgather on the circulant graph: any number of members in ceil(log2 n) rounds.
//
// In each round a member sends all parts that it has, or as many of them as are still wanted, to the member behind it
// for which they come next, and receives as many from the member as far ahead. What it has are the parts of members in
// a row, so that they lie side by side in the vector, but where the row goes around its end: at most two messages.
// Rounds ceil(log2 n); bytes received S less its own part, sent (n-1)/n S where parts are equal (else its own part in
// each round, and those behind it in fewer); memory none; no arithmetic. Not in slices, since nothing waits for a part
// of a message and every link is busy in every round, but in messages of kLongestMessage at most. A lost peer: those it
// sends to, in the round it is missing; all others through the epoch's first error. Source: Bruck et al., "Efficient
// algorithms for all-to-all communications", 1997, with the distances of reduce_scatter/circulant.cc.

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

// What two members pass between them in a round, message by message: both come to the same ones.
std::vector<pattern::Range> messages(const Shape& shape, const std::array<Blocks, 2>& pieces) {
  const size_t longest = kLongestMessage / size_of(shape.dtype);
  std::vector<pattern::Range> all;
  for (const Blocks& piece : pieces) {
    const pattern::Range whole = shape.parts(piece.begin, piece.end);
    for (size_t begin = whole.begin; begin < whole.end; begin += longest) {
      all.push_back({begin, std::min(begin + longest, whole.end)});
    }
  }
  return all;
}

Task<void> pass_on(Operation& op, const Request& request, Circulant graph, int round) {
  const Rank behind = request.group.rank(graph.behind(round)), ahead = request.group.rank(graph.ahead(round));
  const std::vector<pattern::Range> out = messages(request.shape, sent(graph, round));
  const std::vector<pattern::Range> in = messages(request.shape, received(graph, round));
  std::vector<Task<void>> all;
  for (size_t i = 0; i < std::max(out.size(), in.size()); ++i) {
    const Vector goes = request.out.part(i < out.size() ? out[i] : pattern::Range{});
    const Vector comes = request.out.part(i < in.size() ? in[i] : pattern::Range{});
    all.push_back(
        exchange(op, chunk_number(request.phase, i, static_cast<unsigned>(round)), behind, goes, ahead, comes));
  }
  return when_all(std::move(all), &op.scope());
}

Task<void> run(Operation& op, Request request) {
  const Circulant graph{request.group.size(), request.me(op)};
  for (int round = graph.rounds() - 1; round >= 0; --round) co_await pass_on(op, request, graph, round);
}

void charge(const Shape& shape, Ledger& ledger) {
  const int n = shape.members();
  ledger.phase();
  for (int round = Circulant{n, 0}.rounds() - 1; round >= 0; --round) {
    ledger.round();
    for (int member = 0; member < n; ++member) {
      const Circulant graph{n, member};
      for (const pattern::Range& message : messages(shape, sent(graph, round))) {
        ledger.send(member, graph.behind(round), message.size() * size_of(shape.dtype));
      }
    }
  }
}

}  // namespace

const Algorithm allgather_circulant{OpKind::kAllgather, "circulant", run, charge};

}  // namespace virga::collective
