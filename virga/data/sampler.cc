#include "virga/data/sampler.h"

#include <numeric>
#include <utility>

#include "virga/base/error.h"
#include "virga/base/random.h"

namespace virga::data {
namespace {

// Keeps the shuffles apart from whatever else draws from the same seed.
constexpr uint64_t kShuffleStream = uint64_t{0x5348'5546} << 32;

}  // namespace

DistributedSampler::DistributedSampler(int64_t count, int64_t batch_size, int rank, int world, uint64_t seed)
    : batch_size_(batch_size), rank_(rank), world_(world), seed_(seed) {
  require(world >= 1 && rank >= 0 && rank < world, "rank {} is outside 0..{}", rank, world - 1);
  require(batch_size >= 1, "the batch size is {}; it must be at least 1", batch_size);
  batches_ = count / world / batch_size;  // floor(floor(a / b) / c) = floor(a / (b c)), without overflow
  require(batches_ >= 1, "{} samples don't fill one batch of {} on each of {} ranks; take a smaller batch size", count,
          batch_size, world);
  order_.resize(static_cast<size_t>(count));
  set_epoch(0);
}

void DistributedSampler::set_epoch(uint64_t epoch) {
  std::iota(order_.begin(), order_.end(), int64_t{0});
  Random random(seed_, kShuffleStream ^ epoch);
  for (size_t left = order_.size(); left > 1; --left) std::swap(order_[left - 1], order_[random.below(left)]);
}

std::span<const int64_t> DistributedSampler::batch(int64_t index) const {
  require(index >= 0 && index < batches_, "batch {} is outside 0..{}", index, batches_ - 1);
  const auto first = static_cast<size_t>((index * world_ + rank_) * batch_size_);
  return std::span(order_).subspan(first, static_cast<size_t>(batch_size_));
}

}  // namespace virga::data
