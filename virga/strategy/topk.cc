#include "virga/strategy/sparse.h"

namespace virga::strategy {
namespace {

class TopK final : public Sparse {
 public:
  explicit TopK(const StrategyContext& context)
      : Sparse(context, bucket_ranges(context.plan)), inter_host_bytes_(bytes(context, options_)) {}

  Task<void> exchange(collective::Comm& comm, size_t bucket, collective::Vector gradient) override {
    return collective::sparse_allreduce(comm, comm.topology().world(), gradient, options_, selectors_[bucket], "flat");
  }
  double inter_host_bytes() const override { return inter_host_bytes_; }

 private:
  static std::vector<pattern::Range> bucket_ranges(const plan::BucketPlan& plan) {
    std::vector<pattern::Range> ranges;
    for (const plan::Bucket& bucket : plan.buckets) ranges.push_back(bucket.elements);
    return ranges;
  }

  // Every rank sends its message to every rank of every other host; hosts may differ in size, so take the mean.
  static double bytes(const StrategyContext& context, const collective::SparseOptions& options) {
    double messages = 0;
    for (int host = 0; host < context.topology.host_count(); ++host) {
      const double ranks = static_cast<double>(context.topology.ranks_of(host).size());
      messages += ranks * (context.topology.world_size() - ranks);
    }
    double payload = 0;
    for (pattern::Range range : bucket_ranges(context.plan)) {
      payload += static_cast<double>(
          collective::sparse_format(range.size(), options.density, options.value_dtype).payload_bytes());
    }
    return messages * payload / context.topology.host_count();
  }

  const double inter_host_bytes_;
};

}  // namespace

std::unique_ptr<Strategy> make_topk(const StrategyContext& context) { return std::make_unique<TopK>(context); }

}  // namespace virga::strategy
