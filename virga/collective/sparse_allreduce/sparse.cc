// What flat top-k and HiTopK share: select, exchange, add in member order.
//
// Rounds 1; bytes sent (n-1) p per member, p = SparseFormat(S, k).payload_bytes(); memory n p. Order of summation:
// member 0, 1, ..., n-1, from zero. On failure the residual holds what it held after the selection.

#include "virga/collective/sparse_allreduce/sparse.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "virga/codec/density.h"
#include "virga/collective/allgatherv/direct.h"

namespace virga::collective {
namespace {

// The messages of all members, side by side.
class Messages {
 public:
  Messages(const codec::SparseFormat& format, int members, bool phantom)
      : format_(format), each_(format.payload_bytes()), members_(members), bytes_(phantom ? 0 : each_ * members) {}

  std::span<std::byte> of(int member) { return {bytes_.data() + each_ * member, each_}; }
  std::vector<size_t> sizes() const { return std::vector<size_t>(members_, each_); }
  net::Buffer buffer() { return {bytes_.empty() ? nullptr : bytes_.data(), each_ * members_}; }

  // All are checked before the first is added: a corrupt one leaves nothing half-done.
  void add_up(std::span<float> sum) {
    std::vector<codec::SparsePayload> payloads;
    for (int member = 0; member < members_; ++member) payloads.push_back(format_.validate(of(member)));
    std::fill(sum.begin(), sum.end(), 0.0f);
    bool finite = true;
    for (const codec::SparsePayload& payload : payloads) {
      payload.add_to(sum);
      finite = finite && payload.finite();
    }
    if (!finite && !sum.empty()) sum[0] = std::numeric_limits<float>::quiet_NaN();
  }

 private:
  const codec::SparseFormat format_;
  const size_t each_;
  const int members_;
  std::vector<std::byte> bytes_;
};

}  // namespace

codec::SparseFormat sparse_format(size_t n, const SparseOptions& options) {
  require(std::isfinite(options.scale), "a sparse allreduce can't scale by {}", options.scale);
  return codec::SparseFormat(n, codec::k_for_density(n, options.density), options.value_dtype);
}

uint64_t fingerprint(const SparseOptions& options) {
  return std::bit_cast<uint64_t>(options.density) * 31 + std::bit_cast<uint32_t>(options.scale) * 7 +
         static_cast<uint8_t>(options.value_dtype);
}

Task<void> exchange_selected(Operation& op, unsigned phase, Group group, FloatVector data, SparseOptions options,
                             Selector& selector) {
  const codec::SparseFormat format = sparse_format(data.elements, options);
  if (data.elements == 0) co_return;
  Messages messages(format, group.size(), data.phantom());
  const int me = group.member(op.comm().rank());
  const Clock& clock = op.comm().loop().clock();
  const size_t compress_bytes = 6 * data.bytes();
  co_await op.work(compress_bytes, [&] {
    if (data.phantom()) return;
    selector.selected.begin = clock.now();
    selector.feedback.compress(data.span(), options.scale, format, messages.of(me));
    selector.selected.end = clock.now();
  });
  co_await allgatherv_direct(op, phase, group, messages.sizes(), messages.buffer());
  const size_t add_bytes = data.bytes() + 4 * messages.buffer().bytes;
  co_await op.work(add_bytes, [&] {
    if (!data.phantom()) messages.add_up(data.span());
  });
}

}  // namespace virga::collective
