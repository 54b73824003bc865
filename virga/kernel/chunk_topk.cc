#include "virga/kernel/chunk_topk.h"

#include <bit>
#include <cmath>
#include <limits>

#include "virga/base/error.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;
constexpr int32_t kEverything = -1;                                // a threshold that every magnitude exceeds
constexpr int32_t kNothing = std::numeric_limits<int32_t>::max();  // one that none does
constexpr int32_t kFirstSlack = 3 << 19;                           // in bits of a float: a factor between 0.84 and 0.91
constexpr int32_t kLeastSlack = 64, kMostSlack = 1 << 27;          // the most is 16 octaves

int32_t magnitude(float x) { return static_cast<int32_t>(std::bit_cast<uint32_t>(x) & 0x7fffffffu); }

}  // namespace

// The lowest threshold found by bisection that at least k but at most `most` values exceed. Where equal magnitudes
// allow none, the highest that at least k exceed. At least k exceed `low`, fewer exceed `high`.
ChunkTopK::Cut ChunkTopK::raised(std::span<const float> values, Cut low, int32_t high, size_t k, size_t most) {
  while (low.count > most && high - 1 > low.above) {
    const int32_t middle = static_cast<int32_t>((int64_t{low.above} + high) / 2);
    const size_t count = select_table().count_above(values.data(), middle, values.size());
    if (count >= k) {
      low = {middle, count};
    } else {
      high = middle;
    }
  }
  return low;
}

// Appends what exceeds the threshold as candidates, whose number is returned.
size_t ChunkTopK::gather(std::span<const float> chunk, size_t base, int32_t threshold) {
  size_t end = count_;
  for (size_t i = 0; i < chunk.size(); i += kBlock) {
    end += select_table().gather(chunk.data() + i, threshold, static_cast<uint32_t>(base + i),
                                 std::min(kBlock, chunk.size() - i), indices_.data() + end, values_.data() + end);
  }
  return end - count_;
}

// At least k candidates of a chunk; leaves the threshold that they exceed.
size_t ChunkTopK::candidates(std::span<const float> chunk, size_t base, size_t k) {
  const size_t found = gather(chunk, base, threshold_);
  if (found >= k) return found;
  slack_ = std::min(2 * slack_, kMostSlack);
  threshold_ = raised(chunk, {kEverything, chunk.size()}, threshold_, k, 2 * k).above;
  return gather(chunk, base, threshold_);
}

// Cuts the candidates to the best k, still in order of index, and makes them results. False if one is not finite: such
// magnitudes exceed every threshold, so if there are any, they are here.
bool ChunkTopK::keep_best(size_t found, size_t k) {
  const std::span<const float> values(values_.data() + count_, found);
  const uint32_t largest = select_table().max_magnitude(values.data(), 1.0f, found);
  if (largest >= kInfinity) return false;
  const Cut cut = raised(values, {threshold_, found}, static_cast<int32_t>(largest), k, k);
  const int32_t border = cut.above + 1;  // the magnitude of which there are too many, if there is one
  size_t equals_left = k - select_table().count_above(values.data(), border, found);
  for (size_t i = count_, end = count_ + found; i < end; ++i) {
    const int32_t m = magnitude(values_[i]);
    const bool equal = m == border && equals_left > 0;
    indices_[count_] = indices_[i];
    values_[count_] = values_[i];
    equals_left -= equal;
    count_ += equal || m > border;
  }
  if (found > wanted_) slack_ = std::max(slack_ - slack_ / 16, kLeastSlack);
  if (found < wanted_) slack_ = std::min(slack_ + slack_ / 8, kMostSlack);
  threshold_ = std::max(cut.above - slack_, kEverything);
  return true;
}

Selection ChunkTopK::select(std::span<const float> x, size_t chunk, size_t k) {
  require(x.size() <= (uint64_t{1} << 32), "top-k takes at most 2^32 elements, not {}", x.size());
  require(k >= 1 && k <= chunk, "a chunk of {} elements can't give {}", chunk, k);
  const size_t room = chunk_topk_count(x.size(), chunk, k) + std::min(chunk, x.size());
  if (indices_.size() < room) {
    indices_.resize(room);
    values_.resize(room);
  }
  count_ = 0;
  threshold_ = kNothing;
  slack_ = kFirstSlack;
  // A neighbour's border passes k of a chunk but for the deviation of two such counts: four times that.
  wanted_ = k + static_cast<size_t>(4 * std::sqrt(2.0 * static_cast<double>(k)));
  for (size_t begin = 0; begin < x.size(); begin += chunk) {
    const std::span<const float> part = x.subspan(begin, std::min(chunk, x.size() - begin));
    const size_t wanted = std::min(k, part.size());
    if (!keep_best(candidates(part, begin, wanted), wanted)) return {{}, {}, false};
  }
  return {{indices_.data(), count_}, {values_.data(), count_}, true};
}

}  // namespace virga::kernel
