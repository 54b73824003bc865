#include "virga/cluster/wire.h"

#include "virga/cluster/control.pb.h"
#include "virga/cluster/rank_list.h"

namespace virga::cluster::wire {
namespace {

constexpr size_t kMaxName = 256;
constexpr size_t kMaxAddress = 64 << 10;
constexpr int kMaxSettings = 256;
constexpr size_t kMaxSetting = 4 << 10;
constexpr size_t kMaxReason = 4 << 10;

void check_length(std::string_view what, Rank rank, size_t length, size_t limit) {
  if (length <= limit) return;
  fail(ErrorCode::kCorrupt, "the {} of rank {} has {} bytes; at most {} are allowed", what, rank, length, limit);
}

Rank get_rank(int32_t rank, int world_size) { return rank >= 0 && rank < world_size ? rank : -1; }

ErrorCode get_code(int32_t code) {
  const bool known = code >= 0 && code <= static_cast<int32_t>(ErrorCode::kNonFinite);
  return known ? static_cast<ErrorCode>(code) : ErrorCode::kAborted;
}

}  // namespace

void put(const MemberInfo& info, Member& message) {
  message.set_rank(info.rank);
  message.set_local_rank(info.local_rank);
  message.set_host_identity(info.host_identity);
  message.set_host_name(info.host_name);
  message.set_transport_address(info.transport_address);
}

void put(const cluster::Abort& abort, Abort& message) {
  message.set_epoch(abort.epoch);
  message.set_code(static_cast<int32_t>(abort.code));
  message.set_operation(printable(abort.operation, kMaxName));
  message.set_culprit(abort.culprit);
  message.set_reason(printable(abort.reason, kMaxReason));
  message.set_reporter(abort.reporter);
}

MemberInfo get(const Member& message, int world_size) {
  MemberInfo info;
  info.rank = message.rank();
  if (get_rank(info.rank, world_size) < 0) {
    fail(ErrorCode::kMismatch, "there is no rank {} in a job of {}", info.rank, world_size);
  }
  check_length("host identity", info.rank, message.host_identity().size(), kMaxName);
  check_length("host name", info.rank, message.host_name().size(), kMaxName);
  check_length("transport address", info.rank, message.transport_address().size(), kMaxAddress);
  info.local_rank = message.local_rank();
  info.host_identity = message.host_identity();
  info.host_name = printable(message.host_name(), kMaxName);
  info.transport_address = message.transport_address();
  return info;
}

MemberInfo get_member(const Hello& message, int world_size) {
  MemberInfo info = get(message.member(), world_size);
  check_length("fingerprint (in settings)", info.rank, message.fingerprint_size(), kMaxSettings);
  for (const wire::Setting& setting : message.fingerprint()) {
    check_length("fingerprint's names", info.rank, setting.name().size(), kMaxName);
    check_length("fingerprint's values", info.rank, setting.value().size(), kMaxSetting);
    info.fingerprint.push_back({setting.name(), setting.value()});
  }
  return info;
}

cluster::Abort get(const Abort& message, int world_size) {
  cluster::Abort abort;
  abort.epoch = message.epoch();
  abort.code = get_code(message.code());
  abort.operation = printable(message.operation(), kMaxName);
  abort.culprit = get_rank(message.culprit(), world_size);
  abort.reason = printable(message.reason(), kMaxReason);
  abort.reporter = get_rank(message.reporter(), world_size);
  return abort;
}

}  // namespace virga::cluster::wire
