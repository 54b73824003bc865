// How UcxTransport treats peers that leave, die or are given up, and how it ends itself.

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "virga/net/ucx/transport.h"

namespace virga::net::ucx {

namespace {

using namespace std::chrono_literals;

// How long the end of a transport may take: what was sent must leave, but a peer that answers
// nothing is not waited for.
constexpr Duration kLongestGoodbye = 2s;
constexpr Duration kSilence = 200ms;
constexpr Duration kPause = 100us;

}  // namespace

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
    if (peer.left) {
      end_connection(peer, *peer.left);
      continue;
    }
    lose(peer, Error(ErrorCode::kPeerLost, fmt::format("rank {} is lost: {}", rank, ucs_status_string(status)), rank));
    reports_.push_back(*peer.lost);
  }
  return !departures.empty() || !errors.empty();
}

void UcxTransport::lose(Peer& peer, const Error& reason) {
  if (peer.lost) return;
  peer.lost = reason;
  mailbox_.give_up_peer(peer.rank, reason);
  end_connection(peer, reason);
}

void UcxTransport::end_connection(Peer& peer, const Error& reason) {
  for (Flight& flight : peer.flights) flight.transfer->set_reason(reason);
  if (peer.context == &between_hosts_) {
    // UCX completes what was in flight in later progress: only then are the buffers free.
    peer.endpoint.close_by_force();
  } else if (!peer.flights.empty()) {
    halt_inside_host(reason);
  }
}

// UCX refuses to close a shared-memory endpoint by force and ignores the cancelling of a send, so a
// send that must be given up stays with UCX for ever. It only reads the buffer while it progresses,
// though (and never writes one: there is no rendezvous inside the host). So this is the quarantine:
// the whole context is never progressed again, and every buffer it holds is free at once. The price
// is the connection to all ranks of this host.
void UcxTransport::halt_inside_host(const Error& reason) {
  inside_host_.halt();
  for (Peer& peer : peers_) {
    if (peer.context != &inside_host_) continue;
    if (!peer.lost) peer.lost = reason;
    mailbox_.give_up_peer(peer.rank, *peer.lost);
    for (Flight& flight : peer.flights) flight.transfer->finish(*peer.lost);
    quarantine(peer);
  }
}

UcxTransport::~UcxTransport() {
  leave_together({this});
  loop_.remove_source(*this);
  // What UCX still holds here belongs to a halted context or to a peer that answered nothing.
  for (Peer& peer : peers_) quarantine(peer);
}

void UcxTransport::leave_together(const std::vector<UcxTransport*>& transports) {
  for (UcxTransport* transport : transports) transport->say_goodbye();
  const bool flushed = settle(transports);
  for (UcxTransport* transport : transports) transport->close_endpoints(flushed);
  settle(transports);
  for (UcxTransport* transport : transports) transport->abandon_unfinished();
}

void UcxTransport::abandon_unfinished() {
  const auto unfinished = [this](Peer& peer) {
    return peer.context == &inside_host_ && (inside_host_.halted() || !peer.endpoint.settled());
  };
  if (std::any_of(peers_.begin(), peers_.end(), unfinished)) inside_host_.abandon();
}

// The goodbye lets peers that go on take the end of the connection for what it is.
void UcxTransport::say_goodbye() {
  for (Peer& peer : peers_) {
    if (!peer.endpoint.is_open() || peer.lost || peer.context->halted()) continue;
    const ucp_request_param_t params{};
    void* const request =
        ucp_am_send_nbx(peer.endpoint.handle(), Inlet::kGoodbye, &rank_, sizeof rank_, nullptr, 0, &params);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    peer.endpoint.flush();
  }
}

void UcxTransport::close_endpoints(bool flushed) {
  for (Peer& peer : peers_) {
    if (!peer.endpoint.is_open() || peer.context->halted()) continue;
    if (peer.context == &between_hosts_) {
      peer.endpoint.close_by_force();
    } else if (flushed) {
      peer.endpoint.close();
    }
  }
}

bool UcxTransport::settled() {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](Peer& peer) { return !peer.context || peer.context->halted() || peer.endpoint.settled(); });
}

bool UcxTransport::settle(const std::vector<UcxTransport*>& transports) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto end = now() + kLongestGoodbye;
  auto last_move = now();
  while (!std::all_of(transports.begin(), transports.end(), [](UcxTransport* t) { return t->settled(); })) {
    bool moved = false;
    for (UcxTransport* t : transports) {
      moved |= t->inside_host_.progress();
      moved |= t->between_hosts_.progress();
    }
    if (moved) last_move = now();
    if (now() >= end || now() - last_move >= kSilence) return false;
    if (!moved) std::this_thread::sleep_for(kPause);
  }
  return true;
}

void UcxTransport::quarantine(Peer& peer) {
  for (Flight& flight : peer.flights) flight.quarantined = true;
  in_flight_ -= peer.flights.size();
  quarantine_.splice(quarantine_.end(), peer.flights);
}

}  // namespace virga::net::ucx
