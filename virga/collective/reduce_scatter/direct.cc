// Reduce-scatter by direct exchange: every member sends each owner its part of that owner's shard.
//
// Rounds 1, in slices; bytes sent (n-1)/n S per member when all are owners; memory (n-1) slices a lane on owners.
// Order of summation: member 0, 1, ..., n-1. A lost peer: the owners that wait for it fail with the epoch's first
// error. Made for ranks of one host, where every pair has its own memory path; between hosts the ring is kinder to the
// links.

#include "virga/collective/reduce_scatter/direct.h"

#include <algorithm>
#include <vector>

#include "virga/kernel/elementwise.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

struct Phase {
  Operation& op;
  unsigned phase;
  Group group;
  int owners;
  FloatVector data;
  int me;

  FloatVector slice_of(int owner, size_t index) const {
    const FloatVector shard = data.part(pattern::shard(data.elements, owners, owner));
    return shard.part(pattern::slice(shard.elements, index));
  }
  size_t slices_of(int owner) const {
    return pattern::slice_count(pattern::shard(data.elements, owners, owner).size());
  }
};

void add_in_member_order(FloatVector own, std::vector<std::vector<float>>& theirs, int me) {
  // Member 0's values come first: they are the accumulator, wherever they lie.
  if (me == 0) {
    for (size_t member = 1; member < theirs.size(); ++member) kernel::add(own.span(), theirs[member]);
    return;
  }
  std::span<float> sum = theirs[0];
  for (size_t member = 1; member < theirs.size(); ++member) {
    kernel::add(sum, static_cast<int>(member) == me ? std::span<const float>(own.span())
                                                    : std::span<const float>(theirs[member]));
  }
  std::copy(sum.begin(), sum.end(), own.data);
}

Task<void> collect_slice(Phase& phase, size_t index) {
  const FloatVector own = phase.slice_of(phase.me, index);
  std::vector<std::vector<float>> theirs(phase.group.size());
  std::vector<Task<void>> receives;
  for (int member = 0; member < phase.group.size(); ++member) {
    if (member == phase.me) continue;
    if (!own.phantom()) theirs[member].resize(own.elements);
    const net::Buffer into{own.phantom() ? nullptr : reinterpret_cast<std::byte*>(theirs[member].data()), own.bytes()};
    receives.push_back(phase.op.receive(phase.group.rank(member), chunk_number(phase.phase, index, 0), into));
  }
  co_await when_all(std::move(receives), &phase.op.scope());
  const size_t touched = own.bytes() * 3 * (phase.group.size() - 1);
  co_await phase.op.work(touched, [&] {
    if (!own.phantom()) add_in_member_order(own, theirs, phase.me);
  });
}

Task<void> collect(Phase& phase) {
  const auto lane = [&phase](size_t i) { return collect_slice(phase, i); };
  co_await run_lanes(phase.slices_of(phase.me), kLanes, phase.op.scope(), lane);
}

Task<void> hand_out(Phase& phase, int owner) {
  const auto lane = [&phase, owner](size_t i) {
    return phase.op.send(phase.group.rank(owner), chunk_number(phase.phase, i, 0), phase.slice_of(owner, i).buffer());
  };
  co_await run_lanes(phase.slices_of(owner), kLanes, phase.op.scope(), lane);
}

}  // namespace

Task<void> reduce_scatter_direct(Operation& op, unsigned phase_number, Group group, int owners, FloatVector data) {
  const int me = group.member(op.comm().rank());
  Phase phase{op, phase_number, std::move(group), owners, data, me};
  std::vector<Task<void>> parts;
  for (int distance = 1; distance < phase.group.size(); ++distance) {
    const int owner = (me + distance) % phase.group.size();
    if (owner < owners) parts.push_back(hand_out(phase, owner));
  }
  if (me < owners && phase.group.size() > 1) parts.push_back(collect(phase));
  co_await when_all(std::move(parts), &op.scope());
}

Task<void> reduce_scatter(Comm& comm, Group group, FloatVector data) {
  return comm.perform(group, {net::OpKind::kReduceScatter, DType::kFloat32, data.elements},
                      [&](Operation& op) { return reduce_scatter_direct(op, 0, group, group.size(), data); });
}

}  // namespace virga::collective
