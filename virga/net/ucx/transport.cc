#include "virga/net/ucx/transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "virga/net/ucx/address.h"
#include "virga/net/ucx/arrival.h"
#include "virga/net/ucx/settings.h"

namespace virga::net::ucx {

UcxTransport::UcxTransport(Loop& loop, const Options& options)
    : loop_(loop),
      rank_(options.rank),
      inside_host_(inside_host_settings(events_.descriptor())),
      between_hosts_(between_hosts_settings(events_.descriptor(), options.transports_between_hosts,
                                            options.devices_between_hosts)),
      inside_inlet_(inside_host_, *this),
      between_inlet_(between_hosts_, *this),
      peers_(options.world_size),
      mailbox_(options.world_size, options.limits) {
  require(rank_ >= 0 && rank_ < options.world_size, "rank {} does not exist among {}", rank_, options.world_size);
  for (Rank rank = 0; rank < options.world_size; ++rank) {
    peers_[rank].rank = rank;
    peers_[rank].transport = this;
  }
  mailbox_.set_failure_listener([this](const Error& error) { reports_.push_back(error); });
  loop_.add_source(*this);
}

std::string UcxTransport::address() const {
  return encode(Address{rank_, inside_host_.address(), between_hosts_.address()});
}

void UcxTransport::connect(Rank rank, std::string_view blob, bool same_host) {
  Peer& peer = peer_at(rank);
  const Address address = decode_address(blob);
  if (address.rank != rank) {
    fail(ErrorCode::kCorrupt, "the address given for rank {} belongs to rank {}", rank, address.rank);
  }
  if (rank == rank_) return;
  require(!peer.context, "rank {} is connected already", rank);
  peer.context = same_host ? &inside_host_ : &between_hosts_;
  try {
    peer.endpoint.open(*peer.context, same_host ? address.inside_host : address.between_hosts,
                       &UcxTransport::on_endpoint_error, &peer);
  } catch (const Error& error) {  // inside the host its shared memory is opened now, and gone with its process
    throw Error(ErrorCode::kPeerLost, fmt::format("no connection to rank {}: {}", rank, error.what()), rank);
  }
}

UcxTransport::Peer& UcxTransport::peer_at(Rank rank) {
  require(rank >= 0 && rank < world_size(), "rank {} does not exist among {}", rank, world_size());
  return peers_[rank];
}

TransferPtr UcxTransport::send(Rank to, const Header& header, ConstBuffer payload) {
  require(!payload.phantom(), "a phantom buffer can't be sent over a real network");
  Peer& peer = peer_at(to);
  Header stamped = header;
  stamped.source = rank_;
  // UCX does not write to a buffer that is sent.
  const Buffer buffer{const_cast<std::byte*>(payload.data), payload.bytes};
  auto transfer = std::make_shared<Transfer>(Transfer::Direction::kSend, to, stamped, buffer);
  if (peer.lost || peer.left) {
    transfer->finish(peer.lost ? peer.lost : peer.left);
  } else if (to == rank_) {
    send_to_self(transfer);
  } else {
    require(peer.endpoint.is_open(), "rank {} is not connected yet", to);
    launch(peer, transfer);
  }
  return transfer;
}

TransferPtr UcxTransport::receive(Rank from, const Header& expected, Buffer payload, Transfer::Use use) {
  require(!payload.phantom(), "a phantom buffer can't receive from a real network");
  Peer& peer = peer_at(from);
  auto transfer = std::make_shared<Transfer>(Transfer::Direction::kReceive, from, expected, payload, std::move(use));
  if (peer.lost) {
    transfer->finish(peer.lost);
    return transfer;
  }
  mailbox_.expect(transfer);
  if (peer.left) mailbox_.give_up(transfer, *peer.left);  // unless it had come before the goodbye
  return transfer;
}

void UcxTransport::cancel(const TransferPtr& transfer, const Error& reason) {
  if (transfer->finished() || mailbox_.give_up(transfer, reason)) return;
  transfer->set_reason(reason);
  Peer& peer = peer_at(transfer->peer());
  lose(peer, Error(reason.code(),
                   fmt::format("the connection to rank {} was closed when a message on it was given up: {}", peer.rank,
                               reason.what()),
                   reason.culprit()));
}

void UcxTransport::fail_peer(Rank rank, const Error& reason) { lose(peer_at(rank), reason); }

Traffic UcxTransport::traffic(Rank peer) const { return peers_.at(peer).traffic; }

UcxTransport::Flight& UcxTransport::take_off(Peer& peer, const TransferPtr& transfer) {
  Flight& flight = peer.flights.emplace_back(*this, transfer);
  flight.self = std::prev(peer.flights.end());
  ++in_flight_;
  return flight;
}

void UcxTransport::launch(Peer& peer, const TransferPtr& transfer) {
  Flight& flight = take_off(peer, transfer);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &UcxTransport::on_sent;
  params.user_data = &flight;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(peer.endpoint.handle(), Inlet::kMessage, &transfer->header(), sizeof(Header),
                      transfer->buffer().data, transfer->buffer().bytes, &params);
  if (!UCS_PTR_IS_PTR(request)) land(flight, UCS_PTR_RAW_STATUS(request));
}

// Through the mailbox alone: UCX would copy as well.
void UcxTransport::send_to_self(const TransferPtr& transfer) {
  const Buffer& payload = transfer->buffer();
  Traffic& traffic = peers_[rank_].traffic;
  traffic.bytes_sent += payload.bytes;
  ++traffic.messages_sent;
  Receiver& self = *this;
  arrived(std::make_unique<WholeMessage>(transfer->header(), payload.data, payload.bytes, self));
  transfer->finish();
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* argument) {
  ucp_request_free(request);
  auto& flight = *static_cast<Flight*>(argument);
  flight.transport.land(flight, status);
}

void UcxTransport::fetch(ucp_worker_h worker, void* descriptor, const TransferPtr& receive) {
  Flight& flight = take_off(peers_[receive->peer()], receive);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = &UcxTransport::on_fetched;
  params.user_data = &flight;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker, descriptor, receive->buffer().data, receive->buffer().bytes, &params);
  if (!UCS_PTR_IS_PTR(request)) land(flight, UCS_PTR_RAW_STATUS(request));
}

void UcxTransport::on_fetched(void* request, ucs_status_t status, size_t, void* argument) {
  ucp_request_free(request);
  auto& flight = *static_cast<Flight*>(argument);
  flight.transport.land(flight, status);
}

void UcxTransport::land(Flight& flight, ucs_status_t status) {
  if (flight.quarantined) return;
  const TransferPtr transfer = std::move(flight.transfer);
  Peer& peer = peers_[transfer->peer()];
  peer.flights.erase(flight.self);
  --in_flight_;
  if (status != UCS_OK) {
    transfer->finish(Error(ErrorCode::kPeerLost,
                           fmt::format("{}: the connection to rank {} failed: {}", describe(transfer->header()),
                                       peer.rank, ucs_status_string(status)),
                           peer.rank));
  } else if (transfer->direction() == Transfer::Direction::kReceive) {
    transfer->take(transfer->buffer().data);
    delivered(transfer);
  } else {
    peer.traffic.bytes_sent += transfer->buffer().bytes;
    ++peer.traffic.messages_sent;
    transfer->finish();
  }
}

void UcxTransport::delivered(const TransferPtr& receive) {
  Traffic& traffic = peers_[receive->peer()].traffic;
  traffic.bytes_received += receive->buffer().bytes;
  ++traffic.messages_received;
  receive->finish();
}

bool UcxTransport::progress() {
  bool worked = inside_host_.progress();
  worked |= between_hosts_.progress();
  worked |= handle_departures();
  worked |= pass_reports();
  return worked;
}

bool UcxTransport::arm() {
  return reports_.empty() && errors_.empty() && departures_.empty() && inside_host_.arm() && between_hosts_.arm();
}

bool UcxTransport::pass_reports() {
  if (reports_.empty()) return false;
  for (const Error& error : std::exchange(reports_, {})) {
    if (listener_) listener_(error);
  }
  return true;
}

}  // namespace virga::net::ucx
