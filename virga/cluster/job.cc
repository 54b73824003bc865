#include "virga/cluster/job.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "virga/cluster/dump_signal.h"
#include "virga/cluster/fingerprint.h"
#include "virga/cluster/host_identity.h"
#include "virga/cluster/interface.h"
#include "virga/net/ucx/transport.h"
#include "virga/runtime/loop_thread.h"

namespace virga::cluster {
namespace {

constexpr Duration kExchangeTimeout = std::chrono::seconds(60);

Duration timeout_from_environment(const char* name, Duration otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  double seconds = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, seconds);
  require(error == std::errc() && stop == end && seconds > 0 && seconds < 1e6,
          "{}={}: a number of seconds above 0 is wanted", name, text);
  return from_seconds(seconds);
}

void print_progress(const std::string& line) { std::fprintf(stderr, "virga: %s\n", line.c_str()); }

Topology topology_of(const std::vector<MemberInfo>& members) {
  std::vector<std::string> identities;
  for (const MemberInfo& member : members) identities.push_back(member.host_identity);
  return Topology(identities);
}

}  // namespace

// Made and destroyed in the order below: control ends before the loop whose work it aborts.
struct Job::Impl {
  explicit Impl(JobOptions options);
  ~Impl();

  ControlOptions control_options(const JobOptions& options);
  void open_transport();
  void connect();
  void await_all_connected();
  void build_comm(const JobOptions& options);
  std::string describe() const;

  LaunchInfo launch = read_launch_environment();
  LoopThread loop;
  ThreadWorker worker{loop.loop()};
  std::unique_ptr<net::ucx::UcxTransport> transport;
  std::unique_ptr<Control> control;
  std::vector<MemberInfo> members;
  std::unique_ptr<Comm> comm;
  std::unique_ptr<DumpSignal> dump_signal;
};

Job::Impl::Impl(JobOptions options) {
  if (!options.on_progress) options.on_progress = print_progress;
  try {
    open_transport();
    control = std::make_unique<Control>(control_options(options));
    members = control->meet();
    loop.call([&] {
      connect();
      build_comm(options);
    });
    await_all_connected();
    control->set_abort_listener(
        [this](const Abort& abort) { loop.loop().post([this, error = to_error(abort)] { comm->abort(error); }); });
  } catch (...) {
    loop.call([&] {
      dump_signal.reset();
      comm.reset();
      transport.reset();
    });
    throw;
  }
}

Job::Impl::~Impl() {
  control->set_abort_listener(nullptr);
  control->leave();
  loop.call([this] { comm->abort(Error(ErrorCode::kAborted, "this rank has left the job", launch.rank)); });
  loop.drain();  // tasks that an exception left behind still use what goes now
  loop.call([this] {
    dump_signal.reset();
    comm.reset();
    transport.reset();
  });
}

void Job::Impl::open_transport() {
  const std::string interface = launch.rendezvous_host.empty() ? "lo" : interface_towards(launch.rendezvous_host);
  loop.call([&] {
    const net::ucx::UcxTransport::Options options(launch.rank, launch.world_size, interface);
    transport = std::make_unique<net::ucx::UcxTransport>(loop.loop(), options);
  });
}

ControlOptions Job::Impl::control_options(const JobOptions& options) {
  const HostFacts facts = read_host_facts();
  ControlOptions control;
  control.world_size = launch.world_size;
  control.local_world_size = launch.local_world_size;
  control.job = launch.job;
  control.rendezvous_host = launch.rendezvous_host;
  control.rendezvous_port = launch.rendezvous_port;
  control.meeting_timeout = timeout_from_environment("VIRGA_RENDEZVOUS_TIMEOUT_SECONDS", options.meeting_timeout);
  control.on_progress = options.on_progress;
  control.self.rank = launch.rank;
  control.self.local_rank = launch.local_rank;
  control.self.host_identity = host_identity(facts);
  control.self.host_name = facts.host_name;
  control.self.fingerprint = options.settings;
  loop.call([&] { control.self.transport_address = transport->address(); });
  return control;
}

void Job::Impl::connect() {
  const std::string& here = members[launch.rank].host_identity;
  for (const MemberInfo& member : members) {
    if (member.rank != launch.rank) {
      transport->connect(member.rank, member.transport_address, member.host_identity == here);
    }
  }
}

// A rank that leaves takes its shared memory along: whoever still had to connect to it would fail.
void Job::Impl::await_all_connected() { control->exchange("connected", "", kExchangeTimeout); }

void Job::Impl::build_comm(const JobOptions& options) {
  comm = std::make_unique<Comm>(*transport, worker, topology_of(members));
  comm->set_timeout(timeout_from_environment("VIRGA_OPERATION_TIMEOUT_SECONDS", options.operation_timeout));
  comm->set_failure_reporter([this](const Error& error) {
    if (error.code() == ErrorCode::kDeadlineExceeded) std::fputs(describe().c_str(), stderr);
    control->report(to_abort(error, comm->epoch()));
  });
  dump_signal = std::make_unique<DumpSignal>(loop.loop(), [this] { std::fputs(describe().c_str(), stderr); });
}

std::string Job::Impl::describe() const {
  return fmt::format("virga: rank {} of {} on {}, the last operations:\n{}", launch.rank, launch.world_size,
                     members[launch.rank].host_name, comm->ring().dump());
}

Job::Job(JobOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Job::~Job() = default;

Rank Job::rank() const { return impl_->launch.rank; }
int Job::world_size() const { return impl_->launch.world_size; }
int Job::local_world_size() const { return impl_->launch.local_world_size; }
const Topology& Job::topology() const { return impl_->comm->topology(); }
const std::vector<MemberInfo>& Job::members() const { return impl_->members; }

std::future<void> Job::start(std::function<Task<void>(Comm&)> make) {
  return impl_->loop.start([this, make = std::move(make)] { return make(*impl_->comm); });
}

std::vector<std::string> Job::exchange(std::string_view key, std::string value) {
  return impl_->control->exchange(key, std::move(value), kExchangeTimeout);
}

void Job::require_equal(std::string_view setting, std::string value) {
  const std::string name(setting);
  std::vector<MemberInfo> members = impl_->members;
  const std::vector<std::string> values = exchange(name, std::move(value));
  for (MemberInfo& member : members) member.fingerprint = {{name, values[static_cast<size_t>(member.rank)]}};
  if (const auto difference = fingerprint_difference(members)) {
    fail(ErrorCode::kMismatch, "the ranks disagree: {}", *difference);
  }
}

void Job::fail_everywhere(const Error& error) {
  impl_->control->report(to_abort(error, impl_->comm->epoch()));
  impl_->loop.loop().post([this, error] { impl_->comm->abort(error); });
}

uint64_t Job::inter_host_bytes() {
  uint64_t bytes = 0;
  impl_->loop.call([&] {
    const Topology& topology = impl_->comm->topology();
    for (Rank peer = 0; peer < world_size(); ++peer) {
      if (topology.host_of(peer) != topology.host_of(rank())) bytes += impl_->transport->traffic(peer).bytes_sent;
    }
  });
  return bytes;
}

std::string Job::dump() {
  std::string text;
  impl_->loop.call([&] { text = impl_->describe(); });
  return text;
}

}  // namespace virga::cluster
