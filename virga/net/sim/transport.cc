#include "virga/net/sim/transport.h"

#include <cstring>

#include "virga/net/sim/message.h"

namespace virga::net::sim {

SimTransport::SimTransport(World& world, Rank rank, int world_size, Mailbox::Limits limits)
    : world_(world),
      rank_(rank),
      world_size_(world_size),
      mailbox_(world_size, limits),
      traffic_(world_size),
      lost_(world_size) {}

TransferPtr SimTransport::send(Rank to, const Header& header, ConstBuffer payload) {
  Buffer buffer{const_cast<std::byte*>(payload.data), payload.bytes};
  auto transfer = std::make_shared<Transfer>(Transfer::Direction::kSend, to, header, buffer);
  if (lost_[to]) {
    transfer->finish(*lost_[to]);
    return transfer;
  }
  traffic_[to].bytes_sent += payload.bytes;
  ++traffic_[to].messages_sent;
  sending_.insert(transfer);
  world_.transmit(std::make_shared<World::Message>(rank_, to, transfer));
  return transfer;
}

TransferPtr SimTransport::receive(Rank from, const Header& expected, Buffer payload, Transfer::Use use) {
  auto transfer = std::make_shared<Transfer>(Transfer::Direction::kReceive, from, expected, payload, std::move(use));
  if (lost_[from]) {
    transfer->finish(*lost_[from]);
  } else {
    mailbox_.expect(transfer);
  }
  return transfer;
}

void SimTransport::cancel(const TransferPtr& transfer, const Error& reason) {
  if (transfer->finished()) return;
  if (transfer->direction() == Transfer::Direction::kSend) {
    sending_.erase(transfer);
    transfer->finish(reason);  // the world drops its message when it sees that
    return;
  }
  mailbox_.give_up(transfer, reason);
}

void SimTransport::fail_peer(Rank peer, const Error& reason) {
  if (lost_[peer]) return;
  lost_[peer] = reason;
  mailbox_.give_up_peer(peer, reason);
  std::erase_if(sending_, [&](const TransferPtr& transfer) {
    if (transfer->peer() != peer) return false;
    transfer->finish(reason);
    return true;
  });
}

void SimTransport::arrive(std::unique_ptr<Arrival> arrival) {
  const Rank source = arrival->header().source;
  traffic_[source].bytes_received += arrival->bytes();
  ++traffic_[source].messages_received;
  mailbox_.arrive(std::move(arrival));
}

void SimTransport::sent(const TransferPtr& transfer) {
  sending_.erase(transfer);
  transfer->finish();
}

void SimTransport::peer_died(Rank peer) {
  if (lost_[peer]) return;
  const Error error(ErrorCode::kPeerLost, fmt::format("rank {} closed its connection without a word", peer), peer);
  fail_peer(peer, error);
  if (mailbox_.failure_listener()) mailbox_.failure_listener()(error);
}

void SimTransport::die(const Error& reason) {
  for (Rank peer = 0; peer < world_size_; ++peer) fail_peer(peer, reason);
}

}  // namespace virga::net::sim
