#pragma once

#include "virga/strategy/strategy.h"

namespace virga::strategy {

// The dense mean over all ranks by hierarchical allreduce; `wire` is what travels between hosts.
class Dense final : public Strategy {
 public:
  Dense(const StrategyContext& context, DType wire);

  Task<void> exchange(collective::Comm& comm, size_t bucket, collective::Vector gradient) override;
  double inter_host_bytes() const override { return inter_host_bytes_; }

 private:
  const DType wire_;
  const double inter_host_bytes_;
};

}  // namespace virga::strategy
