#include "virga/cluster/comm.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace virga::cluster {
namespace {

// How long a rank that has lost a peer, or has waited in vain, lets the control plane say who is to blame: the peer may
// only have given up because of somebody else.
constexpr Duration kVerdictWait = std::chrono::milliseconds(500);

bool may_be_innocent(const Error& error) {
  return error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kDeadlineExceeded;
}

}  // namespace

Comm::Comm(net::Transport& transport, Worker& worker, Topology topology, Epoch epoch)
    : transport_(transport), worker_(worker), topology_(std::move(topology)), epoch_(epoch) {
  require(topology_.world_size() == transport.world_size(), "the topology knows {} ranks, the transport {}",
          topology_.world_size(), transport.world_size());
  transport_.set_arrival_check([this](const net::Header& header) { return ring_.check(header); });
  transport_.set_failure_listener([this](const Error& error) { note_failure(error); });
}

Comm::~Comm() {
  transport_.set_arrival_check(nullptr);
  transport_.set_failure_listener(nullptr);
  if (own_verdict_) loop().cancel(*own_verdict_);
}

std::unique_ptr<Operation> Comm::begin(const Group& group, const OpDescriptor& descriptor) {
  if (failure_) throw *failure_;
  require(group.contains(rank()), "rank {} starts a {} on a group that it is no member of", rank(),
          net::to_string(descriptor.kind));
  const Rank highest = *std::max_element(group.ranks().begin(), group.ranks().end());
  require(highest < world_size(), "a group names rank {} of a job of {}", highest, world_size());
  net::Header header;
  header.kind = descriptor.kind;
  header.dtype = descriptor.dtype;
  header.epoch = epoch_;
  header.operation = next_operation_[group.hash()]++;
  header.elements = descriptor.elements;
  header.options = descriptor.options ^ purpose_;
  header.source = rank();
  header.root = descriptor.root;
  header.group = group.hash();
  header.wire = descriptor.wire;
  header.reduction = descriptor.reduction;
  header.algorithm = descriptor.algorithm;
  auto operation = std::make_unique<Operation>(*this, header, Deadline(loop().now() + timeout_));
  transport_.recheck_waiting(header.operation);  // what came before this rank knew what it would be
  return operation;
}

void Comm::set_figures(const Figures& figures) {
  figures_ = figures;
  remembered_.clear();
}

void Comm::abort(const Error& reason) {
  if (failure_) return;
  failure_ = reason;
  const std::vector<Operation*> running(running_.begin(), running_.end());
  for (Operation* operation : running) operation->scope().cancel(reason);
  for (Event* decided : awaiting_verdict_) decided->set();
}

// The report goes out before this rank closes anything: a neighbour must not hear our hanging up first and blame us.
void Comm::note_failure(const Error& error) {
  if (failure_) return;
  if (!std::exchange(reported_, true) && reporter_) reporter_(error);
  if (!may_be_innocent(error)) return abort(error);
  if (!own_verdict_) own_verdict_ = loop().call_at(loop().now() + kVerdictWait, [this, error] { abort(error); });
}

Task<void> Comm::await_verdict() {
  if (failure_) co_return;
  Event decided;
  const auto position = awaiting_verdict_.insert(awaiting_verdict_.end(), &decided);
  co_await decided;
  awaiting_verdict_.erase(position);
}

Operation::Operation(Comm& comm, const net::Header& header, Deadline deadline)
    : comm_(comm), header_(header), deadline_(deadline), record_(comm.ring_.begin(header, comm.loop().now())) {
  position_ = comm_.running_.insert(comm_.running_.end(), this);
}

Operation::~Operation() { comm_.running_.erase(position_); }

Task<void> Operation::send(Rank to, uint64_t chunk, net::ConstBuffer payload) {
  scope_.throw_if_cancelled();
  net::Header header = header_;
  header.chunk = chunk;
  record_.bytes_sent += payload.bytes;
  net::TransferPtr transfer = comm_.transport_.send(to, header, payload);
  co_await net::finish(comm_.transport_, std::move(transfer), deadline_, scope_);
}

Task<void> Operation::receive(Rank from, uint64_t chunk, net::Buffer payload) {
  return begin_receive(from, chunk, payload, {});
}

Task<void> Operation::receive_and_use(Rank from, uint64_t chunk, net::Buffer room, size_t bytes_touched,
                                      net::Transfer::Use use) {
  if (comm_.worker_.stays_on_loop(bytes_touched)) {
    co_await begin_receive(from, chunk, room, std::move(use));
    co_return;
  }
  co_await receive(from, chunk, room);
  co_await work(bytes_touched, [&] {
    if (!room.phantom()) use(room);
  });
}

Task<void> Operation::begin_receive(Rank from, uint64_t chunk, net::Buffer payload, net::Transfer::Use use) {
  scope_.throw_if_cancelled();
  net::Header header = header_;
  header.chunk = chunk;
  net::TransferPtr transfer = comm_.transport_.receive(from, header, payload, std::move(use));
  co_await net::finish(comm_.transport_, std::move(transfer), deadline_, scope_);
  record_.bytes_received += payload.bytes;
}

Task<void> Comm::complete(std::unique_ptr<Operation> operation, Task<void> algorithm) {
  std::optional<Error> failure;
  try {
    co_await std::move(algorithm);
  } catch (...) {
    failure = current_error();
  }
  const Time now = loop().now();
  if (!failure) {
    ring_.end(operation->record_, OperationRing::State::kDone, now);
    co_return;
  }
  ring_.end(operation->record_, OperationRing::State::kFailed, now, failure->what());
  note_failure(*failure);
  co_await await_verdict();  // note_failure has seen to it that one comes
  throw *failure_;
}

}  // namespace virga::cluster
