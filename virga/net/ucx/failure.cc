// How UcxTransport treats peers that leave, die or are given up, and how it ends itself.

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "virga/net/ucx/transport.h"

namespace virga::net::ucx {

using namespace std::chrono_literals;

bool UcxTransport::accepts_from(Rank source) const {
  // A source that can't be is the mailbox's to report.
  return source < 0 || source >= world_size() || !peers_[source].lost;
}

void UcxTransport::peer_left(Rank source) {
  if (source >= 0 && source < world_size() && source != rank_) departures_.push_back(source);
}

void UcxTransport::on_endpoint_error(void* argument, ucp_ep_h, ucs_status_t status) {
  auto& peer = *static_cast<Peer*>(argument);
  peer.transport->errors_.emplace_back(peer.rank, status);
}

bool UcxTransport::handle_departures() {
  const auto departures = std::exchange(departures_, {});
  for (const Rank rank : departures) {
    Peer& peer = peers_[rank];
    peer.left = Error(ErrorCode::kPeerLost, fmt::format("rank {} has ended its part of the job", rank), rank);
    mailbox_.give_up_peer(rank, *peer.left);
  }
  const auto errors = std::exchange(errors_, {});
  for (const auto& [rank, status] : errors) {
    Peer& peer = peers_[rank];
    if (peer.lost) continue;
    const bool expected = peer.left.has_value();
    lose(peer, expected ? *peer.left
                        : Error(ErrorCode::kPeerLost,
                                fmt::format("rank {} is lost: {}", rank, ucs_status_string(status)), rank));
    if (!expected) reports_.push_back(*peer.lost);
  }
  return !departures.empty() || !errors.empty();
}

void UcxTransport::lose(Peer& peer, const Error& reason) {
  if (peer.lost) return;
  peer.lost = reason;
  mailbox_.give_up_peer(peer.rank, reason);
  for (Flight& flight : peer.flights) flight.transfer->set_reason(reason);
  if (peer.context == &between_hosts_) {
    // UCX completes what was in flight in later progress: only then are the buffers free.
    peer.endpoint.close_by_force();
  } else if (!peer.flights.empty()) {
    halt_inside_host(reason);
  }
}

// UCX refuses to close a shared-memory endpoint by force and ignores the cancelling of a send, so a send that must be
// given up stays with UCX for ever. It only reads the buffer while it progresses, though (and never writes one: there is
// no rendezvous inside the host). So this is the quarantine: the whole context is never progressed again, and every
// buffer it holds is free at once. The price is the connection to all ranks of this host.
void UcxTransport::halt_inside_host(const Error& reason) {
  inside_host_.halt();
  for (Peer& peer : peers_) {
    if (peer.context != &inside_host_) continue;
    if (!peer.lost) peer.lost = reason;
    mailbox_.give_up_peer(peer.rank, *peer.lost);
    for (Flight& flight : peer.flights) {
      flight.quarantined = true;
      flight.transfer->finish(*peer.lost);
    }
    in_flight_ -= peer.flights.size();
    quarantine_.splice(quarantine_.end(), peer.flights);
  }
}

UcxTransport::~UcxTransport() {
  loop_.remove_source(*this);
  say_goodbye();
  for (Peer& peer : peers_) {
    if (!peer.context || peer.context->halted()) continue;
    peer.endpoint.flush();
  }
  const bool flushed = wait_until_settled(2s);
  for (Peer& peer : peers_) {
    if (!peer.context || peer.context->halted()) continue;
    if (peer.context == &between_hosts_) {
      peer.endpoint.close_by_force();
    } else if (flushed) {
      peer.endpoint.close();
    }
  }
  wait_until_settled(500ms);
  for (Peer& peer : peers_) {
    in_flight_ -= peer.flights.size();
    for (Flight& flight : peer.flights) flight.quarantined = true;
    quarantine_.splice(quarantine_.end(), peer.flights);
  }
}

// So that peers which go on take the end of the connection for what it is.
void UcxTransport::say_goodbye() {
  for (Peer& peer : peers_) {
    if (!peer.endpoint.is_open() || peer.lost || peer.context->halted()) continue;
    const ucp_request_param_t params{};
    void* const request =
        ucp_am_send_nbx(peer.endpoint.handle(), Inlet::kGoodbye, &rank_, sizeof rank_, nullptr, 0, &params);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
}

bool UcxTransport::wait_until_settled(Duration limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    bool settled = true;
    for (Peer& peer : peers_) settled &= peer.endpoint.settled() || peer.context->halted();
    if (settled) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    const bool worked = inside_host_.progress() | between_hosts_.progress();
    if (worked || !inside_host_.arm() || !between_hosts_.arm()) continue;
    pollfd wait{events_.descriptor(), POLLIN, 0};
    poll(&wait, 1, 10);
  }
}

}  // namespace virga::net::ucx
