#include "virga/net/mailbox.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace virga::net {

size_t Mailbox::AddressHash::operator()(const Address& address) const {
  uint64_t hash = static_cast<uint32_t>(address.source);
  for (uint64_t word : {uint64_t{address.group}, address.operation, address.chunk}) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

void Mailbox::expect(const TransferPtr& receive) {
  const Address address = address_of(receive->peer(), receive->header());
  const auto found = waiting_.find(address);
  if (found == waiting_.end()) {
    receives_[address].push_back(receive);
    return;
  }
  std::unique_ptr<Arrival> arrival = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) waiting_.erase(found);
  waiting_bytes_ -= arrival->bytes();
  --waiting_messages_;
  deliver_checked(std::move(arrival), receive);
}

void Mailbox::arrive(std::unique_ptr<Arrival> arrival) {
  if (!admit(*arrival)) return;
  const Address address = address_of(arrival->header().source, arrival->header());
  const auto found = receives_.find(address);
  if (found != receives_.end()) {
    const TransferPtr receive = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) receives_.erase(found);
    deliver_checked(std::move(arrival), receive);
    return;
  }
  if (waiting_messages_ + 1 > limits_.waiting_messages || waiting_bytes_ + arrival->bytes() > limits_.waiting_bytes) {
    report(
        Error(ErrorCode::kResourceExhausted,
              fmt::format("rank {} sends ahead of this rank: {} messages with {} bytes wait unmatched; the limit is {} "
                          "messages, {} bytes",
                          arrival->header().source, waiting_messages_, waiting_bytes_, limits_.waiting_messages,
                          limits_.waiting_bytes),
              arrival->header().source));
    return;
  }
  waiting_bytes_ += arrival->bytes();
  ++waiting_messages_;
  arrival->keep();
  waiting_[address].push_back(std::move(arrival));
}

bool Mailbox::give_up(const TransferPtr& receive, const Error& reason) {
  const auto found = receives_.find(address_of(receive->peer(), receive->header()));
  if (found == receives_.end()) return false;
  const auto position = std::find(found->second.begin(), found->second.end(), receive);
  if (position == found->second.end()) return false;
  found->second.erase(position);
  if (found->second.empty()) receives_.erase(found);
  receive->finish(reason);
  return true;
}

void Mailbox::give_up_peer(Rank peer, const Error& reason) {
  for (auto entry = receives_.begin(); entry != receives_.end();) {
    if (entry->first.source != peer) {
      ++entry;
      continue;
    }
    for (const TransferPtr& receive : entry->second) receive->finish(reason);
    entry = receives_.erase(entry);
  }
}

void Mailbox::recheck_waiting(OpNumber operation) {
  if (!check_) return;
  std::vector<Error> errors;
  for (const auto& [address, arrivals] : waiting_) {
    if (address.operation != operation) continue;
    for (const auto& arrival : arrivals) {
      if (auto error = check_(arrival->header())) errors.push_back(*error);
    }
  }
  for (const Error& error : errors) report(error);
}

bool Mailbox::admit(const Arrival& arrival) {
  try {
    validate(arrival.header(), world_size_);
  } catch (const Error& error) {
    report(error);
    return false;
  }
  if (!check_) return true;
  const auto error = check_(arrival.header());
  if (error) report(*error);
  return !error;
}

void Mailbox::deliver_checked(std::unique_ptr<Arrival> arrival, const TransferPtr& receive) {
  std::string wrong = difference(receive->header(), arrival->header());
  if (wrong.empty() && arrival->bytes() != receive->buffer().bytes) {
    wrong = fmt::format("message size {} here, {} there", receive->buffer().bytes, arrival->bytes());
  }
  if (wrong.empty()) {
    arrival->deliver(receive);
    return;
  }
  const Error error(
      ErrorCode::kMismatch,
      fmt::format("{}: this rank and rank {} disagree: {}", describe(receive->header()), receive->peer(), wrong),
      receive->peer());
  receive->finish(error);
  report(error);
}

void Mailbox::report(const Error& error) {
  if (listener_) listener_(error);
}

}  // namespace virga::net
