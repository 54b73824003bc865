#include "virga/collective/exchange.h"

#include "virga/runtime/task_group.h"

namespace virga::collective {

Task<void> exchange(cluster::Operation& op, uint64_t chunk, Rank to, Vector out, Rank from, Vector in) {
  std::vector<Task<void>> both;
  if (out.elements > 0) both.push_back(op.send(to, chunk, out.buffer()));
  if (in.elements > 0) both.push_back(op.receive(from, chunk, in.buffer()));
  return when_all(std::move(both), &op.scope());
}

}  // namespace virga::collective
