#include "virga/strategy/dense.h"

#include "virga/collective/allreduce/allreduce.h"

namespace virga::strategy {
namespace {

double ring_bytes(const StrategyContext& context, DType wire) {
  const double hosts = context.topology.host_count();
  return 2 * (hosts - 1) / hosts * static_cast<double>(context.plan.elements * size_of(wire));
}

}  // namespace

Dense::Dense(const StrategyContext& context, DType wire) : wire_(wire), inter_host_bytes_(ring_bytes(context, wire)) {}

Task<void> Dense::exchange(collective::Comm& comm, size_t, collective::Vector gradient) {
  const collective::AllreduceOptions mean(collective::Reduction::kAverage, wire_, "hierarchical");
  return collective::allreduce(comm, comm.topology().world(), gradient, mean);
}

}  // namespace virga::strategy
