#include "virga/cluster/sim_job.h"

#include <string>

#include "virga/runtime/task_group.h"

namespace virga::cluster {
namespace {

// How long the control plane needs to carry a word from one rank to all: a round trip through rank 0.
constexpr Duration kWord = std::chrono::milliseconds(1);
// How long a closed connection takes to be noticed.
constexpr Duration kHangUp = std::chrono::milliseconds(50);

Topology topology_of(const net::sim::World& world) {
  std::vector<std::string> identity;
  for (Rank rank = 0; rank < world.size(); ++rank) identity.push_back("host" + std::to_string(world.host_of(rank)));
  return Topology(identity);
}

Error lost(Rank culprit, std::string_view how) {
  return Error(ErrorCode::kPeerLost, fmt::format("rank {} {}; the job can't go on without it", culprit, how), culprit);
}

}  // namespace

SimJob::SimJob(net::sim::Options options) {
  world_ = std::make_unique<net::sim::World>(loop_, std::move(options));
  for (Rank rank = 0; rank < world_->size(); ++rank) {
    comms_.push_back(std::make_unique<Comm>(world_->transport(rank), world_->worker(rank), topology_of(*world_)));
    comms_.back()->set_failure_reporter([this, rank](const Error& error) {
      loop_.call_at(loop_.now() + kWord, [this, rank, error] {
        if (world_->responsive(rank)) broadcast_abort(error);
      });
    });
  }
}

SimJob::~SimJob() = default;

SimJob::Outcomes SimJob::run(std::function<Task<void>(Comm&)> body) {
  Outcomes outcomes(size());
  const auto guarded = [&](Rank rank) -> Task<void> {
    try {
      co_await body(comm(rank));
    } catch (const Error& error) {
      outcomes[rank] = error;
    }
  };
  std::vector<Task<void>> tasks;
  for (Rank rank = 0; rank < size(); ++rank) tasks.push_back(guarded(rank));
  loop_.run(when_all(std::move(tasks)));
  return outcomes;
}

void SimJob::run_or_throw(std::function<Task<void>(Comm&)> body) {
  for (const auto& outcome : run(std::move(body))) {
    if (outcome) throw *outcome;
  }
}

void SimJob::kill(Rank rank) {
  world_->kill(rank);
  loop_.call_at(loop_.now() + kHangUp, [this, rank] { broadcast_abort(lost(rank, "closed its connection")); });
}

void SimJob::pause(Rank rank) {
  world_->pause(rank);
  watch(rank);
}

void SimJob::cut(int host) {
  world_->cut(host);
  for (Rank rank = 0; rank < size(); ++rank) {
    if (world_->host_of(rank) == host) watch(rank);
  }
}

void SimJob::watch(Rank suspect) {
  loop_.call_at(loop_.now() + kHeartbeatTimeout, [this, suspect] {
    if (world_->responsive(suspect)) return;
    broadcast_abort(lost(suspect, "sent no heartbeat for 10 s"));
    comm(suspect).abort(lost(0, "could not be reached for 10 s"));
  });
}

void SimJob::broadcast_abort(const Error& reason) {
  for (Rank rank = 0; rank < size(); ++rank) {
    if (world_->responsive(rank)) comm(rank).abort(reason);
  }
}

}  // namespace virga::cluster
