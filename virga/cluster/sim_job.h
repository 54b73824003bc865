#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "virga/cluster/comm.h"
#include "virga/net/sim/world.h"

namespace virga::cluster {

// A whole job in one process: every rank of a simulated world with its Comm, and a control plane that behaves as the
// real one does. It hears the first failure and tells every rank; it notices a killed process by its closed connection
// and an unresponsive one by its missing heartbeats.
class SimJob {
 public:
  explicit SimJob(net::sim::Options options);
  ~SimJob();

  int size() const { return world_->size(); }
  Loop& loop() { return loop_; }
  net::sim::World& world() { return *world_; }
  Comm& comm(Rank rank) { return *comms_[rank]; }

  // Runs the body on every rank until all have ended; what each of them threw, if anything.
  using Outcomes = std::vector<std::optional<Error>>;
  Outcomes run(std::function<Task<void>(Comm&)> body);
  // The same, and throws the first rank's error.
  void run_or_throw(std::function<Task<void>(Comm&)> body);

  void kill(Rank rank);
  void pause(Rank rank);
  void cut(int host);

  static constexpr Duration kHeartbeatTimeout = std::chrono::seconds(10);

 private:
  void broadcast_abort(const Error& reason);
  void watch(Rank suspect);

  VirtualClock clock_;
  Loop loop_{clock_};
  std::unique_ptr<net::sim::World> world_;
  std::vector<std::unique_ptr<Comm>> comms_;
};

}  // namespace virga::cluster
