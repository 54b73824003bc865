#pragma once

#include <any>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "virga/cluster/figures.h"
#include "virga/cluster/group.h"
#include "virga/cluster/operation_ring.h"
#include "virga/cluster/topology.h"
#include "virga/net/transport.h"
#include "virga/runtime/event.h"
#include "virga/runtime/worker.h"

namespace virga::cluster {

class Operation;

// What an operation is, beyond its number: everything here must be equal on all members of the group.
struct OpDescriptor {
  net::OpKind kind;
  DType dtype = DType::kFloat32;
  uint64_t elements = 0;
  Rank root = -1;
  DType wire = DType::kByte;
  net::Reduction reduction = net::Reduction::kSum;
  uint16_t algorithm = 0;
  uint64_t options = 0;
};

// One rank's membership in the job during one epoch: what collectives run on. It is the same object on real and on
// simulated networks. Loop thread only.
//
// The first failure ends the epoch: it is reported (so that the control plane can tell all other ranks), every running
// operation fails with it, and later ones throw it at once.
class Comm {
 public:
  Comm(net::Transport& transport, Worker& worker, Topology topology, Epoch epoch = 1);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  net::Transport& transport() { return transport_; }
  Worker& worker() { return worker_; }
  Loop& loop() { return transport_.loop(); }
  const Topology& topology() const { return topology_; }
  Rank rank() const { return transport_.rank(); }
  int world_size() const { return transport_.world_size(); }
  Epoch epoch() const { return epoch_; }
  const OperationRing& ring() const { return ring_; }

  // How long one operation may take; the default for all that begin from now on.
  void set_timeout(Duration timeout) { timeout_ = timeout; }
  Duration timeout() const { return timeout_; }

  // What the job's links can do, as far as the choice of algorithms depends on it: the same on all ranks.
  void set_figures(const Figures& figures);
  const Figures& figures() const { return figures_; }

  // What `make` gives, made once for each key: for what follows from the job's make-up and is wanted again and again.
  // Forgotten when figures change or when there is too much of it.
  template <class Make>
  auto remembered(uint64_t key, Make make) -> decltype(make());

  // Starts an operation on a group that this rank belongs to, and returns the task that runs `algorithm` (Operation& ->
  // Task<void>) on it to its end. The operation's number is drawn here and now, not when the task runs: members must
  // start their operations on a group in the same order. A failure is noted in the ring and ends the epoch. Throws what
  // ended the epoch, if something did, before anything is sent.
  template <class Algorithm>
  Task<void> perform(const Group& group, const OpDescriptor& descriptor, Algorithm algorithm);

  // What operations are for that begin while this lives: one more thing that members must agree on, so that two of
  // equal shape that cross each other are a mismatch and not a wrong sum.
  class Purpose {
   public:
    Purpose(Comm& comm, uint64_t purpose) : comm_(comm), before_(comm.purpose_) { comm.purpose_ = purpose; }
    ~Purpose() { comm_.purpose_ = before_; }
    Purpose(const Purpose&) = delete;
    Purpose& operator=(const Purpose&) = delete;

   private:
    Comm& comm_;
    const uint64_t before_;
  };

  // Ends the epoch from outside (the control plane, a lost peer, the user). The first reason wins.
  void abort(const Error& reason);
  const std::optional<Error>& failure() const { return failure_; }

  // Told of the first failure that this rank notices itself; not of what abort() brought.
  void set_failure_reporter(std::function<void(const Error&)> reporter) { reporter_ = std::move(reporter); }

 private:
  friend class Operation;
  std::unique_ptr<Operation> begin(const Group& group, const OpDescriptor& descriptor);
  Task<void> complete(std::unique_ptr<Operation> operation, Task<void> algorithm);
  void note_failure(const Error& error);
  Task<void> await_verdict();

  net::Transport& transport_;
  Worker& worker_;
  const Topology topology_;
  const Epoch epoch_;
  Duration timeout_ = std::chrono::seconds(60);
  Figures figures_ = kOrdinaryFigures;
  std::map<uint64_t, std::any> remembered_;
  uint64_t purpose_ = 0;
  OperationRing ring_;
  std::map<uint32_t, OpNumber> next_operation_;  // by group hash
  std::list<Operation*> running_;
  std::optional<Error> failure_;
  bool reported_ = false;
  std::list<Event*> awaiting_verdict_;
  std::optional<Loop::TimerKey> own_verdict_;  // when a loss that the transport reports ends the epoch by itself
  std::function<void(const Error&)> reporter_;
};

// A running operation: what an algorithm sends and receives through. It stamps every message with the operation's
// header, and every wait with its deadline.
class Operation {
 public:
  Operation(Comm& comm, const net::Header& header, Deadline deadline);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  Comm& comm() { return comm_; }
  CancelScope& scope() { return scope_; }
  const net::Header& header() const { return header_; }

  Task<void> send(Rank to, uint64_t chunk, net::ConstBuffer payload);
  Task<void> receive(Rank from, uint64_t chunk, net::Buffer payload);
  // Receives a message and works on it. `use` gets the payload: where there is little to do, as the transport holds it,
  // else from `room`, memory of its size, off the loop (see Worker::run). Nothing is done to phantoms.
  Task<void> receive_and_use(Rank from, uint64_t chunk, net::Buffer room, size_t bytes_touched, net::Transfer::Use use);
  // Heavy work on elements, off the loop; see Worker::run.
  Task<void> work(size_t bytes_touched, std::function<void()> work) {
    return comm_.worker_.run(bytes_touched, std::move(work));
  }

 private:
  friend class Comm;
  Task<void> begin_receive(Rank from, uint64_t chunk, net::Buffer payload, net::Transfer::Use use);

  Comm& comm_;
  net::Header header_;
  Deadline deadline_;
  CancelScope scope_;
  OperationRing::Record& record_;
  std::list<Operation*>::iterator position_;
};

template <class Make>
auto Comm::remembered(uint64_t key, Make make) -> decltype(make()) {
  constexpr size_t kMost = 4096;
  using Value = decltype(make());
  const auto found = remembered_.find(key);
  if (found != remembered_.end()) return std::any_cast<Value>(found->second);
  if (remembered_.size() >= kMost) remembered_.clear();
  Value value = make();
  remembered_.emplace(key, value);
  return value;
}

template <class Algorithm>
Task<void> Comm::perform(const Group& group, const OpDescriptor& descriptor, Algorithm algorithm) {
  std::unique_ptr<Operation> operation = begin(group, descriptor);
  Task<void> task = algorithm(*operation);
  return complete(std::move(operation), std::move(task));
}

}  // namespace virga::cluster
