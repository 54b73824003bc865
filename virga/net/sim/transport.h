#pragma once

#include <optional>
#include <unordered_set>
#include <vector>

#include "virga/net/mailbox.h"
#include "virga/net/sim/world.h"
#include "virga/net/transport.h"

namespace virga::net::sim {

// One virtual rank's end of the virtual network.
class SimTransport final : public Transport {
 public:
  SimTransport(World& world, Rank rank, int world_size, Mailbox::Limits limits);

  Loop& loop() override { return world_.loop(); }
  Rank rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  TransferPtr send(Rank to, const Header& header, ConstBuffer payload) override;
  TransferPtr receive(Rank from, const Header& expected, Buffer payload, Transfer::Use use) override;
  using Transport::receive;
  void cancel(const TransferPtr& transfer, const Error& reason) override;
  void fail_peer(Rank peer, const Error& reason) override;
  Traffic traffic(Rank peer) const override { return traffic_[peer]; }
  void set_arrival_check(ArrivalCheck check) override { mailbox_.set_arrival_check(std::move(check)); }
  void set_failure_listener(FailureListener listener) override { mailbox_.set_failure_listener(std::move(listener)); }
  void recheck_waiting(OpNumber operation) override { mailbox_.recheck_waiting(operation); }

  // For the world.
  void arrive(std::unique_ptr<Arrival> arrival);
  void sent(const TransferPtr& transfer);
  void peer_died(Rank peer);
  void die(const Error& reason);

 private:
  World& world_;
  const Rank rank_;
  const int world_size_;
  Mailbox mailbox_;
  std::vector<Traffic> traffic_;
  std::vector<std::optional<Error>> lost_;
  std::unordered_set<TransferPtr> sending_;
};

}  // namespace virga::net::sim
