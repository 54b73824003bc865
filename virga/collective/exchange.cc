#include "virga/collective/exchange.h"

#include "virga/collective/inputs.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {

Task<void> exchange(cluster::Operation& op, uint64_t chunk, Rank to, Vector out, Rank from, Vector in) {
  std::vector<Task<void>> both;
  if (out.elements > 0) both.push_back(op.send(to, chunk, out.buffer()));
  if (in.elements > 0) both.push_back(op.receive(from, chunk, in.buffer()));
  return when_all(std::move(both), &op.scope());
}

Task<void> exchange_and_reduce(cluster::Operation& op, uint64_t chunk, Rank to, Vector out, Rank from, Vector sum,
                               Vector room, const Shape& shape) {
  std::vector<Task<void>> both;
  if (out.elements > 0) both.push_back(op.send(to, chunk, out.buffer()));
  if (sum.elements > 0) {
    const auto reduce = [sum, &shape](net::ConstBuffer more) {
      kernel::reduce(shape.reduce_op(), shape.dtype, sum.span(), std::span(more.data, more.bytes));
    };
    const Vector in = room.part({0, sum.elements});
    both.push_back(op.receive_and_use(from, chunk, in.buffer(), reduced_bytes(2, sum.bytes()), reduce));
  }
  return when_all(std::move(both), &op.scope());
}

}  // namespace virga::collective
