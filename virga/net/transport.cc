#include "virga/net/transport.h"

namespace virga::net {
namespace {

Error deadline_error(const Transfer& transfer) {
  const bool sending = transfer.direction() == Transfer::Direction::kSend;
  return Error(ErrorCode::kDeadlineExceeded,
               fmt::format("{}: the deadline passed while {} rank {} (chunk {})", describe(transfer.header()),
                           sending ? "sending to" : "waiting for", transfer.peer(), transfer.header().chunk),
               transfer.peer());
}

}  // namespace

Task<void> finish(Transport& transport, TransferPtr transfer, Deadline deadline, CancelScope& scope) {
  if (!transfer->finished()) {
    if (scope.reason()) transport.cancel(transfer, *scope.reason());
    const auto timer = transport.loop().call_at(
        deadline.at(), [&transport, transfer] { transport.cancel(transfer, deadline_error(*transfer)); });
    const auto registration =
        scope.add([&transport, transfer](const Error& reason) { transport.cancel(transfer, reason); });
    co_await transfer->finished_event();
    scope.remove(registration);
    transport.loop().cancel(timer);
  }
  if (transfer->error()) throw *transfer->error();
}

}  // namespace virga::net
