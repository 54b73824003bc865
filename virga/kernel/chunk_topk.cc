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

// Writes what exceeds the threshold behind the first `end` candidates; returns where they end then.
size_t ChunkTopK::gather(std::span<const float> part, size_t base, int32_t threshold, size_t end) {
  for (size_t i = 0; i < part.size(); i += kBlock) {
    end += select_table().gather(part.data() + i, threshold, static_cast<uint32_t>(base + i),
                                 std::min(kBlock, part.size() - i), found_.data() + end, found_values_.data() + end);
  }
  return end;
}

// Appends the best k of candidates that exceed `threshold` to the results. False if one is not finite: such magnitudes
// exceed every threshold, so if there are any, they are here.
bool ChunkTopK::keep_best(size_t first, size_t found, int32_t threshold, size_t k) {
  const std::span<const float> values(found_values_.data() + first, found);
  const uint32_t largest = select_table().max_magnitude(values.data(), 1.0f, found);
  if (largest >= kInfinity) return false;
  const Cut cut = raised(values, {threshold, found}, static_cast<int32_t>(largest), k, k);
  const int32_t border = cut.above + 1;  // the magnitude of which there are too many, if there is one
  size_t equals_left = cut.count == k ? found : k - select_table().count_above(values.data(), border, found);
  for (size_t i = first, end = first + found; i < end; ++i) {
    const int32_t m = magnitude(found_values_[i]);
    const bool equal = m == border && equals_left > 0;
    indices_[count_] = found_[i];
    values_[count_] = found_values_[i];
    equals_left -= equal;
    count_ += equal || m > border;
  }
  if (found > wanted_) slack_ = std::max(slack_ - slack_ / 16, kLeastSlack);
  if (found < wanted_) slack_ = std::min(slack_ + slack_ / 8, kMostSlack);
  threshold_ = std::max(cut.above - slack_, kEverything);
  return true;
}

// Selects from the chunks of a part, whose candidates are gathered in one go.
bool ChunkTopK::select_part(std::span<const float> part, size_t base, size_t chunk, size_t k) {
  const int32_t threshold = threshold_;
  const size_t end = gather(part, base, threshold, 0);
  size_t first = 0;
  for (size_t begin = 0; begin < part.size(); begin += chunk) {
    const std::span<const float> own = part.subspan(begin, std::min(chunk, part.size() - begin));
    const auto inside = [last = base + begin + (own.size() - 1)](uint32_t index) { return index <= last; };
    const auto from = found_.begin();
    const size_t last = static_cast<size_t>(
        std::partition_point(from + static_cast<ptrdiff_t>(first), from + static_cast<ptrdiff_t>(end), inside) - from);
    const size_t kept = std::min(k, own.size());
    if (last - first >= kept) {
      if (!keep_best(first, last - first, threshold, kept)) return false;
    } else {
      slack_ = std::min(2 * slack_, kMostSlack);
      const int32_t lower = raised(own, {kEverything, own.size()}, threshold, kept, 2 * kept).above;
      if (!keep_best(end, gather(own, base + begin, lower, end) - end, lower, kept)) return false;
    }
    first = last;
  }
  return true;
}

Selection ChunkTopK::select(std::span<const float> x, size_t chunk, size_t k) {
  require(x.size() <= (uint64_t{1} << 32), "top-k takes at most 2^32 elements, not {}", x.size());
  require(k >= 1 && k <= chunk, "a chunk of {} elements can't give {}", chunk, k);
  const size_t many = std::max<size_t>(kBlock / chunk, 1) * chunk;
  const size_t results = chunk_topk_count(x.size(), chunk, k) + 1;  // one more is written, though not kept
  const size_t room = std::min(many, x.size()) + std::min(chunk, x.size());
  if (indices_.size() < results) indices_.resize(results), values_.resize(results);
  if (found_.size() < room) found_.resize(room), found_values_.resize(room);
  count_ = 0;
  threshold_ = kNothing;
  slack_ = kFirstSlack;
  // A neighbour's border passes k of a chunk but for the deviation of two such counts: four times that.
  wanted_ = k + static_cast<size_t>(4 * std::sqrt(2.0 * static_cast<double>(k)));
  for (size_t begin = 0; begin < x.size();) {
    const size_t size = std::min(begin == 0 ? chunk : many, x.size() - begin);  // the first finds the threshold
    if (!select_part(x.subspan(begin, size), begin, chunk, k)) return {{}, {}, false};
    begin += size;
  }
  return {{indices_.data(), count_}, {values_.data(), count_}, true};
}

}  // namespace virga::kernel
