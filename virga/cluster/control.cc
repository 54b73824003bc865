#include "virga/cluster/control.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <future>

#include "virga/cluster/address.h"
#include "virga/cluster/control.pb.h"
#include "virga/cluster/control_stream.h"
#include "virga/cluster/coordinator.h"
#include "virga/cluster/member.h"
#include "virga/cluster/rank_list.h"
#include "virga/runtime/loop_thread.h"

namespace virga::cluster {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(1);
constexpr auto kRetryPause = std::chrono::milliseconds(200);

// Ten times a heartbeat: how exactly silence is measured.
Duration tick_period(const ControlOptions& options) { return options.heartbeat_period / 10; }

void check(const ControlOptions& options) {
  require(options.world_size >= 1, "a job of {} ranks", options.world_size);
  require(options.self.rank >= 0 && options.self.rank < options.world_size, "rank {} in a job of {}", options.self.rank,
          options.world_size);
  require(options.heartbeat_period > Duration::zero() && options.heartbeat_timeout >= 3 * options.heartbeat_period,
          "a heartbeat every {} s and a timeout of {} s: it takes at least three heartbeats",
          to_seconds(options.heartbeat_period), to_seconds(options.heartbeat_timeout));
  if (options.world_size == 1) return;
  require(!options.rendezvous_host.empty(), "the rendezvous of {} ranks has no host", options.world_size);
  const int least = options.self.rank == 0 ? 0 : 1;
  require(options.rendezvous_port >= least && options.rendezvous_port <= 65535, "the rendezvous port {} is none",
          options.rendezvous_port);
}

// Ranks on other hosts can't reach a loopback address: they would find themselves there.
void refuse_loopback(const ControlOptions& options, const std::vector<Address>& addresses) {
  const bool all_here = options.world_size <= options.local_world_size;
  if (all_here || !std::all_of(addresses.begin(), addresses.end(), [](const Address& a) { return a.loopback; })) {
    return;
  }
  fail(ErrorCode::kInvalidArgument,
       "the rendezvous host '{}' resolves to the loopback address {}, which other hosts can't "
       "reach, but only {} of {} "
       "ranks run on this host: set MASTER_ADDR (or VIRGA_RENDEZVOUS) to a name or address of rank "
       "0's host in the network "
       "that joins the hosts; if all ranks run here, set LOCAL_RANK and LOCAL_WORLD_SIZE",
       options.rendezvous_host, addresses.front().ip, options.local_world_size, options.world_size);
}

[[noreturn]] void fail_bind(const ControlOptions& options, const Address& address, int error) {
  const std::string place = fmt::format("{} ({})", address.text(), options.rendezvous_host);
  if (error == EADDRINUSE) {
    fail(ErrorCode::kUnavailable,
         "the rendezvous port is in use: rank 0 can't listen at {}; choose another MASTER_PORT "
         "(Virga meets one above it) "
         "or VIRGA_RENDEZVOUS, or end the process that holds it",
         place);
  }
  if (error == EADDRNOTAVAIL) {
    fail(ErrorCode::kUnavailable,
         "the rendezvous address {} is none of this machine's: rank 0 must run where MASTER_ADDR "
         "(or "
         "VIRGA_RENDEZVOUS) points",
         place);
  }
  fail(ErrorCode::kUnavailable, "rank 0 can't listen at {}: {}", place, std::strerror(error));
}

// The addresses of the host that this machine can listen at. A name may well have one too many (::1
// without IPv6).
std::vector<Address> bindable(const ControlOptions& options, const std::vector<Address>& all) {
  std::vector<Address> usable;
  int last_error = 0;
  for (const Address& address : all) {
    const int error = try_bind(address);
    if (error == 0) {
      usable.push_back(address);
    } else if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
      last_error = error;
    } else {
      fail_bind(options, address, error);
    }
  }
  if (usable.empty()) fail_bind(options, all.front(), last_error);
  // With port 0 several addresses would get several ports.
  if (options.rendezvous_port == 0) usable.resize(1);
  return usable;
}

}  // namespace

// Glue: everything that decides lives in Member and Coordinator, on the thread of `thread_`.
class Control::Impl {
 public:
  explicit Impl(const ControlOptions& options);
  ~Impl();

  int port() const { return options_.rendezvous_port; }
  std::vector<MemberInfo> meet();
  std::vector<std::string> exchange(std::string_view key, std::string value, Duration timeout);
  void report(const Abort& abort);
  void set_abort_listener(std::function<void(const Abort&)> listener);
  void leave();

 private:
  Time now() { return thread_.loop().now(); }
  void post(std::function<void()> call) { thread_.loop().post(std::move(call)); }
  template <class Call>
  auto ask(Call call);

  void open_server();
  Coordinator::Outlet outlet();
  void send(const wire::ToCoordinator& message);
  void seek(std::future<std::vector<MemberInfo>>& met);
  std::optional<Address> find_coordinator();
  std::future<void> open_stream(const Address& address);
  void stream_ended(const ControlClient::End& end);
  void tick();
  void report_unwinding();

  ControlOptions options_;
  const int exceptions_before_ = std::uncaught_exceptions();
  bool has_left_ = false;
  std::optional<std::promise<void>> deserted_;
  std::optional<Coordinator> coordinator_;
  std::optional<Member> member_;
  LoopThread thread_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<ControlClient> client_;
};

Control::Impl::Impl(const ControlOptions& options) : options_(options) {
  check(options_);
  const bool leads = options_.self.rank == 0;
  if (leads) coordinator_.emplace(options_, outlet());
  if (leads && options_.world_size > 1) thread_.call([this] { open_server(); });
  member_.emplace(options_, [this](const wire::ToCoordinator& message) { send(message); });
  post([this] { tick(); });
}

Control::Impl::~Impl() {
  thread_.call([this] {
    client_.reset();
    server_.reset();
  });
}

// Runs `call` on Control's thread and returns its result.
template <class Call>
auto Control::Impl::ask(Call call) {
  decltype(call()) result;
  thread_.call([&] { result = call(); });
  return result;
}

void Control::Impl::open_server() {
  const std::vector<Address> addresses = resolve(options_.rendezvous_host, options_.rendezvous_port);
  refuse_loopback(options_, addresses);
  ControlServer::Events events;
  events.opened = [this](uint64_t link) { post([=, this] { coordinator_->opened(link, now()); }); };
  events.closed = [this](uint64_t link) { post([=, this] { coordinator_->closed(link, now()); }); };
  events.received = [this](uint64_t link, std::shared_ptr<const wire::ToCoordinator> message) {
    post([=, this] { coordinator_->receive(link, *message, now()); });
  };
  server_ = std::make_unique<ControlServer>(bindable(options_, addresses), std::move(events));
  options_.rendezvous_port = server_->port();
}

// Messages to this process's own member take a turn of the loop, so that neither side is called
// while it works.
Coordinator::Outlet Control::Impl::outlet() {
  Coordinator::Outlet outlet;
  outlet.send = [this](Coordinator::LinkId link, const wire::FromCoordinator& message) {
    if (link == Coordinator::kLocal) {
      post([this, message] { member_->receive(message, now()); });
    } else if (server_) {
      server_->send(link, message);
    }
  };
  outlet.close = [this](Coordinator::LinkId link) {
    if (link != Coordinator::kLocal && server_) server_->close(link);
  };
  return outlet;
}

void Control::Impl::send(const wire::ToCoordinator& message) {
  if (client_) client_->send(message);
  if (!coordinator_) return;
  post([this, message] { coordinator_->receive(Coordinator::kLocal, message, now()); });
}

void Control::Impl::tick() {
  member_->tick(now());
  if (coordinator_) {
    coordinator_->tick(now());
    if (deserted_ && coordinator_->deserted()) {
      deserted_->set_value();
      deserted_.reset();
    }
  }
  thread_.loop().call_at(now() + tick_period(options_), [this] { tick(); });
}

// --- The meeting ---

std::vector<MemberInfo> Control::Impl::meet() {
  auto met = ask([this] { return member_->meet(now()); });
  if (coordinator_) {
    post([this] {
      coordinator_->opened(Coordinator::kLocal, now());
      member_->greet(now());
    });
  } else {
    seek(met);
  }
  return met.get();
}

// Until a stream stands or the member has given up, which it does at the deadline.
void Control::Impl::seek(std::future<std::vector<MemberInfo>>& met) {
  while (met.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (const auto address = find_coordinator()) {
      open_stream(*address).wait();
      if (ask([this] { return !member_->is_seeking(); })) return;
    }
    if (met.wait_for(kRetryPause) == std::future_status::ready) return;
  }
}

// The first address of the rendezvous host where something listens.
std::optional<Address> Control::Impl::find_coordinator() {
  std::string trouble;
  try {
    const std::vector<Address> addresses = resolve(options_.rendezvous_host, options_.rendezvous_port);
    refuse_loopback(options_, addresses);
    for (const Address& address : addresses) {
      const std::string refusal = try_connect(address, kConnectTimeout);
      if (refusal.empty()) return address;
      trouble += (trouble.empty() ? "" : "; ") + refusal;
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) {
      post([this, error] { member_->give_up(error); });
    }
    trouble = error.what();
  }
  post([this, trouble] { member_->note_trouble(trouble); });
  return std::nullopt;
}

std::future<void> Control::Impl::open_stream(const Address& address) {
  ControlClient::Events events;
  events.received = [this](std::shared_ptr<const wire::FromCoordinator> message) {
    post([=, this] { member_->receive(*message, now()); });
  };
  events.closed = [this](const ControlClient::End& end) { post([=, this] { stream_ended(end); }); };
  return ask([&] {
    client_.reset();  // the last attempt
    client_ = std::make_unique<ControlClient>(address, std::move(events));
    member_->note_trouble(address.text() +
                          ": something listens there but does not answer as Virga's rank 0; does another "
                          "program hold the port?");
    return member_->greet(now());
  });
}

void Control::Impl::stream_ended(const ControlClient::End& end) {
  if (end.foreign) {
    member_->give_up(Error(ErrorCode::kMismatch,
                           fmt::format("rendezvous: at {}:{} another gRPC server answers rank {}, not Virga's rank 0: "
                                       "choose another port",
                                       options_.rendezvous_host, options_.rendezvous_port, options_.self.rank)));
  }
  member_->disconnected(end.text);
}

// --- The running job ---

std::vector<std::string> Control::Impl::exchange(std::string_view key, std::string value, Duration timeout) {
  require(!has_left_, "exchange '{}' after leave()", printable(key));
  require(key.size() <= 256, "an exchange's key has {} bytes; at most 256 are allowed", key.size());
  require(value.size() <= kMaxExchangeBytes, "exchange '{}' has a value of {} bytes; all together may have {}",
          printable(key), value.size(), kMaxExchangeBytes);
  auto values = ask([&] { return member_->exchange(std::string(key), std::move(value), timeout, now()); });
  return values.get();
}

void Control::Impl::report(const Abort& abort) {
  post([this, abort] { member_->report(abort); });
}

void Control::Impl::set_abort_listener(std::function<void(const Abort&)> listener) {
  thread_.call([&] { member_->set_listener(std::move(listener)); });
}

void Control::Impl::report_unwinding() {
  if (std::uncaught_exceptions() <= exceptions_before_) return;
  report({.epoch = options_.epoch,
          .code = ErrorCode::kAborted,
          .culprit = options_.self.rank,
          .reason =
              fmt::format("rank {} (host {}) failed and leaves the job", options_.self.rank, options_.self.host_name)});
}

void Control::Impl::leave() {
  if (has_left_) return;
  report_unwinding();
  has_left_ = true;
  ask([this] { return member_->leave(now()); }).wait();
  if (!server_) return;
  auto deserted = ask([this] {
    coordinator_->end_meeting();
    deserted_.emplace();
    return deserted_->get_future();
  });
  deserted.wait_for(options_.leave_timeout);
  thread_.call([this] {
    deserted_.reset();
    coordinator_->say_goodbye();
  });
}

Error to_error(const Abort& abort) {
  const std::string message =
      abort.operation.empty() ? abort.reason : fmt::format("{}: {}", abort.operation, abort.reason);
  if (abort.reporter < 0 || abort.reporter == abort.culprit) return Error(abort.code, message, abort.culprit);
  return Error(abort.code, fmt::format("{} (noticed by rank {})", message, abort.reporter), abort.culprit);
}

Abort to_abort(const Error& error, Epoch epoch) {
  return {.epoch = epoch, .code = error.code(), .culprit = error.culprit(), .reason = error.what()};
}

Control::Control(const ControlOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Control::~Control() { leave(); }
int Control::port() const { return impl_->port(); }
std::vector<MemberInfo> Control::meet() { return impl_->meet(); }
std::vector<std::string> Control::exchange(std::string_view key, std::string value, Duration timeout) {
  return impl_->exchange(key, std::move(value), timeout);
}
void Control::report(const Abort& abort) { impl_->report(abort); }
void Control::set_abort_listener(std::function<void(const Abort&)> listener) {
  impl_->set_abort_listener(std::move(listener));
}
void Control::leave() { impl_->leave(); }

}  // namespace virga::cluster
