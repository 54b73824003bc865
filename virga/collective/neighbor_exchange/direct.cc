// Neighbour exchange by direct messages: every member sends its vector to all its neighbours at once.
//
// Rounds 1, in slices; bytes sent S for each neighbour; memory none; no arithmetic. A lost peer: those that it sends
// to, or that send to it, fail with the epoch's first error. Source: gossip averaging, Boyd et al., 2006; textbook.

#include "virga/collective/neighbor_exchange/neighbor_exchange.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

Task<void> send_to(Operation& op, const Request& request, int neighbor) {
  return run_slices(op, request.in, request.shape.slice_elements(), [&op, &request, neighbor](Vector slice, size_t i) {
    return op.send(request.group.rank(neighbor), chunk_number(request.phase, i, 0), slice.buffer());
  });
}

Task<void> receive_from(Operation& op, const Request& request, int neighbor, Vector into) {
  return run_slices(op, into, request.shape.slice_elements(), [&op, &request, neighbor](Vector slice, size_t i) {
    return op.receive(request.group.rank(neighbor), chunk_number(request.phase, i, 0), slice.buffer());
  });
}

Task<void> run(Operation& op, Request request) {
  const int me = request.me(op);
  const size_t elements = request.shape.elements;
  std::vector<Task<void>> parts;
  for (int neighbor : request.shape.graph[static_cast<size_t>(me)]) parts.push_back(send_to(op, request, neighbor));
  size_t begin = 0;
  for (int neighbor : neighbors_before(request.shape, me)) {
    parts.push_back(receive_from(op, request, neighbor, request.out.part({begin, begin + elements})));
    begin += elements;
  }
  co_await when_all(std::move(parts), &op.scope());
}

void charge(const Shape& shape, Ledger& ledger) {
  ledger.phase();
  for_equal_slices(shape.elements, shape.slice_elements(), [&](size_t length, size_t count) {
    ledger.slice(count);
    for (int member = 0; member < shape.members(); ++member) {
      for (int neighbor : shape.graph[static_cast<size_t>(member)]) {
        ledger.send(member, neighbor, length * size_of(shape.dtype));
      }
    }
  });
}

}  // namespace

const Algorithm neighbor_exchange_direct{OpKind::kNeighborExchange, "direct", run, charge};

}  // namespace virga::collective
