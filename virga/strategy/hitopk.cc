#include "virga/strategy/sparse.h"

namespace virga::strategy {
namespace {

constexpr std::string_view kName = "hitopk";

class HiTopK final : public Sparse {
 public:
  explicit HiTopK(const StrategyContext& context)
      : Sparse(context, shards(context)), inter_host_bytes_(bytes(context, options_)) {}

  Task<void> exchange(collective::Comm& comm, size_t bucket, collective::Vector gradient) override {
    return collective::sparse_allreduce(comm, comm.topology().world(), gradient, options_, selectors_[bucket], kName);
  }
  double inter_host_bytes() const override { return inter_host_bytes_; }

 private:
  static std::vector<pattern::Range> shards(const StrategyContext& context) {
    std::vector<pattern::Range> ranges;
    for (const plan::Bucket& bucket : context.plan.buckets) {
      const pattern::Range shard =
          collective::residual_range(kName, context.topology, context.rank, bucket.elements.size());
      ranges.push_back({bucket.elements.begin + shard.begin, bucket.elements.begin + shard.end});
    }
    return ranges;
  }

  // Each owner on a host sends its shard's message to the owners on the other hosts.
  static double bytes(const StrategyContext& context, const collective::SparseOptions& options) {
    const int owners = context.topology.owners_per_host();
    double payload = 0;
    for (const plan::Bucket& bucket : context.plan.buckets) {
      for (int owner = 0; owner < owners; ++owner) {
        const size_t n = pattern::shard(bucket.elements.size(), owners, owner).size();
        if (n > 0)
          payload +=
              static_cast<double>(collective::sparse_format(n, options.density, options.value_dtype).payload_bytes());
      }
    }
    return payload * (context.topology.host_count() - 1);
  }

  const double inter_host_bytes_;
};

}  // namespace

std::unique_ptr<Strategy> make_hitopk(const StrategyContext& context) { return std::make_unique<HiTopK>(context); }

}  // namespace virga::strategy
