#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "virga/net/mailbox.h"
#include "virga/net/transport.h"
#include "virga/net/ucx/context.h"
#include "virga/net/ucx/endpoint.h"
#include "virga/net/ucx/event_set.h"
#include "virga/net/ucx/inlet.h"

namespace virga::net::ucx {

// The real network. One context moves messages inside the host by shared memory, another between
// hosts, by TCP unless told otherwise; UCX can't watch for lost peers where it uses shared memory,
// so one context can't do both.
//
// Life: construct on the loop's thread, publish address(), connect() every peer, use; destroy on
// the same thread. The destructor says goodbye to the peers and gives what was sent up to two
// seconds to leave.
class UcxTransport final : public Transport, public Source, private Receiver {
 public:
  struct Options {
    Options(Rank rank, int world_size, std::string devices_between_hosts)
        : rank(rank), world_size(world_size), devices_between_hosts(std::move(devices_between_hosts)) {}

    Rank rank;
    int world_size;
    std::string devices_between_hosts;  // comma list as UCX names them: "eth0", "mlx5_0:1". UCX
                                        // would listen on all.
    std::string transports_between_hosts = "tcp";
    Mailbox::Limits limits;
  };

  // Throws kUnavailable when a device or shared memory is missing.
  UcxTransport(Loop& loop, const Options& options);
  ~UcxTransport() override;

  // Ends several transports of one thread: each may need the others to move. The destructor does it
  // for one.
  static void leave_together(const std::vector<UcxTransport*>& transports);

  // What every peer needs for connect(): opaque bytes, some hundred.
  std::string address() const;
  // Before anything is sent to that peer; not needed for this rank itself. Connections come to be
  // in the background. Throws kCorrupt for a damaged or foreign address, kPeerLost where a peer of
  // this host has ended.
  void connect(Rank peer, std::string_view address, bool same_host);

  Loop& loop() override { return loop_; }
  Rank rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(peers_.size()); }
  TransferPtr send(Rank to, const Header& header, ConstBuffer payload) override;
  TransferPtr receive(Rank from, const Header& expected, Buffer payload, Transfer::Use use) override;
  using Transport::receive;
  void cancel(const TransferPtr& transfer, const Error& reason) override;
  void fail_peer(Rank peer, const Error& reason) override;
  Traffic traffic(Rank peer) const override;
  void set_arrival_check(ArrivalCheck check) override { mailbox_.set_arrival_check(std::move(check)); }
  void set_failure_listener(FailureListener listener) override { listener_ = std::move(listener); }
  void recheck_waiting(OpNumber operation) override { mailbox_.recheck_waiting(operation); }

  bool progress() override;
  int descriptor() const override { return events_.descriptor(); }
  bool arm() override;
  bool busy() const override { return in_flight_ > 0 || mailbox_.expects_anything(); }

 private:
  // A transfer that UCX holds: its buffer and its header are in use until UCX says that it is done.
  struct Flight {
    Flight(UcxTransport& transport, TransferPtr transfer) : transport(transport), transfer(std::move(transfer)) {}
    UcxTransport& transport;
    TransferPtr transfer;
    std::list<Flight>::iterator self;
    bool quarantined = false;
  };
  struct Peer {
    Rank rank = 0;
    UcxTransport* transport = nullptr;
    Context* context = nullptr;  // null before connect()
    Endpoint endpoint;
    std::list<Flight> flights;
    std::optional<Error> left;  // said goodbye: what it sent before still counts
    std::optional<Error> lost;
    Traffic traffic;
  };

  static void on_sent(void* request, ucs_status_t status, void* flight);
  static void on_fetched(void* request, ucs_status_t status, size_t bytes, void* flight);
  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  bool accepts_from(Rank source) const override;
  void arrived(std::unique_ptr<Arrival> arrival) override { mailbox_.arrive(std::move(arrival)); }
  void refused(const Error& error) override { reports_.push_back(error); }
  void peer_left(Rank source) override;
  void delivered(const TransferPtr& receive) override;
  void fetch(ucp_worker_h worker, void* descriptor, const TransferPtr& receive) override;

  Peer& peer_at(Rank rank);
  Flight& take_off(Peer& peer, const TransferPtr& transfer);
  void land(Flight& flight, ucs_status_t status);
  void launch(Peer& peer, const TransferPtr& transfer);
  void send_to_self(const TransferPtr& transfer);

  void lose(Peer& peer, const Error& reason);
  void end_connection(Peer& peer, const Error& reason);
  void halt_inside_host(const Error& reason);
  bool handle_departures();
  bool pass_reports();

  void say_goodbye();
  void close_endpoints(bool flushed);
  void abandon_unfinished();
  bool settled();
  static bool settle(const std::vector<UcxTransport*>& transports);
  void quarantine(Peer& peer);

  Loop& loop_;
  const Rank rank_;
  FailureListener listener_;
  std::vector<Error> reports_;                         // for the listener, which must not run inside UCX
  std::vector<std::pair<Rank, ucs_status_t>> errors_;  // endpoint errors, likewise
  std::vector<Rank> departures_;                       // goodbyes, likewise
  std::list<Flight> quarantine_;                       // of a halted context; outlives it
  size_t in_flight_ = 0;

  // Destroyed from the bottom up: what waits in the mailbox is UCX memory, endpoints belong to
  // workers.
  EventSet events_;
  Context inside_host_;
  Context between_hosts_;
  Inlet inside_inlet_;
  Inlet between_inlet_;
  std::vector<Peer> peers_;
  Mailbox mailbox_;
};

}  // namespace virga::net::ucx
