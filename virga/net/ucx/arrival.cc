#include "virga/net/ucx/arrival.h"

#include <utility>

namespace virga::net::ucx {
namespace {

// Payloads of one segment lie in the transport's own receive buffers (in shared memory, 64 KiB each, whatever the
// message's size): they are copied, so that early messages can't drain that pool. Longer ones UCX has gathered on the
// heap: they stay there.
constexpr size_t kCopyBelow = 64 << 10;

}  // namespace

WholeMessage::~WholeMessage() {
  if (holds_) ucp_am_data_release(lender_.worker, const_cast<void*>(data_));
}

void WholeMessage::deliver(const TransferPtr& receive) {
  receive->take(data_);
  receiver_.delivered(receive);
}

void WholeMessage::keep() {
  if (lender_.held && bytes() >= kCopyBelow) {
    *lender_.held = holds_ = true;
    return;
  }
  const auto* begin = static_cast<const std::byte*>(data_);
  copy_.assign(begin, begin + bytes());
  data_ = copy_.data();
}

AnnouncedMessage::~AnnouncedMessage() {
  if (holds_ && descriptor_) ucp_am_data_release(lender_.worker, descriptor_);
}

void AnnouncedMessage::deliver(const TransferPtr& receive) {
  if (!holds_) *lender_.held = true;
  receiver_.fetch(lender_.worker, std::exchange(descriptor_, nullptr), receive);
}

void AnnouncedMessage::keep() { *lender_.held = holds_ = true; }

}  // namespace virga::net::ucx
