#include "virga/strategy/dense.h"

#include "virga/collective/allreduce/hierarchical.h"

namespace virga::strategy {
namespace {

double ring_bytes(const StrategyContext& context, DType wire) {
  const double hosts = context.topology.host_count();
  return 2 * (hosts - 1) / hosts * static_cast<double>(context.plan.elements * size_of(wire));
}

}  // namespace

Dense::Dense(const StrategyContext& context, DType wire)
    : wire_(wire),
      scale_(1.0f / static_cast<float>(context.topology.world_size())),
      inter_host_bytes_(ring_bytes(context, wire)) {}

Task<void> Dense::exchange(collective::Comm& comm, size_t, collective::FloatVector gradient) {
  return collective::allreduce_hierarchical(comm, gradient, collective::AllreduceOptions(scale_, wire_));
}

}  // namespace virga::strategy
