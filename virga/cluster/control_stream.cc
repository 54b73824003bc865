#include "virga/cluster/control_stream.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <map>
#include <mutex>

#include "virga/base/error.h"
#include "virga/cluster/control.grpc.pb.h"
#include "virga/cluster/rank_list.h"

namespace virga::cluster {
namespace {

constexpr int kMaxMessageBytes = 80 << 20;
constexpr auto kFlushTime = std::chrono::milliseconds(500);
constexpr auto kCancelTime = std::chrono::seconds(5);

// gRPC prints what we report as errors ourselves.
void quiet_grpc() {
  if (!std::getenv("GRPC_VERBOSITY")) {
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  }
}

std::string uri(const Address& address) { return (address.ipv6 ? "ipv6:" : "ipv4:") + address.text(); }

}  // namespace

// --- Server ---

// Owns the links. One mutex guards all of them: messages are few.
class ControlServer::Service final : public wire::Control::CallbackService {
 public:
  class Link;

  Service(const std::vector<Address>& addresses, Events events);
  ~Service() override;

  int port() const { return port_; }
  void send(LinkId id, const wire::FromCoordinator& message);
  void close(LinkId id);

  grpc::ServerBidiReactor<wire::ToCoordinator, wire::FromCoordinator>* Join(grpc::CallbackServerContext*) override;

 private:
  void bind(grpc::ServerBuilder& builder, const Address& address, int* port);

  const Events events_;
  std::mutex mutex_;
  std::map<LinkId, Link*> links_;  // those that gRPC still uses
  LinkId next_link_ = 1;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class ControlServer::Service::Link final : public grpc::ServerBidiReactor<wire::ToCoordinator, wire::FromCoordinator> {
 public:
  Link(Service& service, LinkId id) : service_(service), id_(id) {}

  void start() { StartRead(&incoming_); }

  // With the service's mutex held.
  void send(const wire::FromCoordinator& message) {
    if (closing_ || finished_) return;
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }
  void close() {
    closing_ = true;
    if (outgoing_.empty()) finish();
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      service_.events_.received(id_, std::make_shared<wire::ToCoordinator>(std::move(incoming_)));
      StartRead(&incoming_);
      return;
    }
    service_.events_.closed(id_);
    std::lock_guard lock(service_.mutex_);
    finish();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(service_.mutex_);
    outgoing_.pop_front();
    if (finished_) return;
    if (!ok) {
      finish();
    } else if (!outgoing_.empty()) {
      StartWrite(&outgoing_.front());
    } else if (closing_) {
      finish();
    }
  }

  void OnCancel() override {
    std::lock_guard lock(service_.mutex_);
    finish();
  }

  void OnDone() override {
    {
      std::lock_guard lock(service_.mutex_);
      service_.links_.erase(id_);
    }
    delete this;
  }

 private:
  void finish() {
    if (finished_) return;
    finished_ = true;
    Finish(grpc::Status::OK);
  }

  Service& service_;
  const LinkId id_;
  wire::ToCoordinator incoming_;
  std::deque<wire::FromCoordinator> outgoing_;  // the first one is being written
  bool closing_ = false;
  bool finished_ = false;
};

ControlServer::Service::Service(const std::vector<Address>& addresses, Events events) : events_(std::move(events)) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(this);
  std::vector<int> ports(addresses.size(), 0);
  for (size_t i = 0; i < addresses.size(); ++i) {
    builder.AddListeningPort(addresses[i].text(), grpc::InsecureServerCredentials(), &ports[i]);
  }
  server_ = builder.BuildAndStart();
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (server_ && ports[i] != 0) continue;
    fail(ErrorCode::kUnavailable, "rank 0 can't listen at {}: something else took that port just now",
         addresses[i].text());
  }
  port_ = ports.front();
}

ControlServer::Service::~Service() {
  if (server_) server_->Shutdown(std::chrono::system_clock::now() + kFlushTime);
  server_.reset();
}

grpc::ServerBidiReactor<wire::ToCoordinator, wire::FromCoordinator>* ControlServer::Service::Join(
    grpc::CallbackServerContext*) {
  std::unique_lock lock(mutex_);
  const LinkId id = next_link_++;
  Link* const link = links_[id] = new Link(*this, id);  // deletes itself when gRPC is done with it
  lock.unlock();
  events_.opened(id);
  link->start();
  return link;
}

void ControlServer::Service::send(LinkId id, const wire::FromCoordinator& message) {
  std::lock_guard lock(mutex_);
  if (const auto link = links_.find(id); link != links_.end()) link->second->send(message);
}

void ControlServer::Service::close(LinkId id) {
  std::lock_guard lock(mutex_);
  if (const auto link = links_.find(id); link != links_.end()) link->second->close();
}

ControlServer::ControlServer(const std::vector<Address>& addresses, Events events) {
  quiet_grpc();
  service_ = std::make_unique<Service>(addresses, std::move(events));
}
ControlServer::~ControlServer() = default;
int ControlServer::port() const { return service_->port(); }
void ControlServer::send(LinkId link, const wire::FromCoordinator& message) { service_->send(link, message); }
void ControlServer::close(LinkId link) { service_->close(link); }

// --- Client ---

class ControlClient::Stream final : public grpc::ClientBidiReactor<wire::ToCoordinator, wire::FromCoordinator> {
 public:
  Stream(const Address& address, Events events) : events_(std::move(events)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // ranks are never behind the user's web proxy
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                     1);  // a new attempt shares no back-off with the last
    channel_ = grpc::CreateCustomChannel(uri(address), grpc::InsecureChannelCredentials(), arguments);
    stub_ = wire::Control::NewStub(channel_);
  }

  void start() {
    stub_->async()->Join(&context_, this);
    AddHold();  // send() may come at any time until the last read
    StartRead(&incoming_);
    StartCall();
  }

  void send(const wire::ToCoordinator& message) {
    std::lock_guard lock(mutex_);
    if (over_) return;
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  // Breaks the stream; events stop here. True once gRPC is done with this object. It must not be
  // destroyed on a thread of gRPC, which would wait for itself when the last channel goes.
  bool detach() {
    std::unique_lock lock(mutex_);
    detached_ = true;
    context_.TryCancel();
    return ended_.wait_for(lock, kCancelTime, [this] { return done_; });
  }

  void OnReadDone(bool ok) override {
    std::unique_lock lock(mutex_);
    if (!ok) {
      over_ = true;
      lock.unlock();
      RemoveHold();
      return;
    }
    if (!detached_) events_.received(std::make_shared<wire::FromCoordinator>(std::move(incoming_)));
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    outgoing_.pop_front();
    if (ok && !over_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
    if (!ok) over_ = true;
  }

  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    if (!detached_) {
      events_.closed({status.error_code() == grpc::StatusCode::UNIMPLEMENTED,
                      printable(status.ok() ? "rank 0 ended the stream" : status.error_message())});
    }
    done_ = true;
    ended_.notify_all();
  }

 private:
  const Events events_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::Control::Stub> stub_;
  grpc::ClientContext context_;
  wire::FromCoordinator incoming_;

  std::mutex mutex_;
  std::condition_variable ended_;
  std::deque<wire::ToCoordinator> outgoing_;  // the first one is being written
  bool over_ = false;
  bool detached_ = false;
  bool done_ = false;
};

ControlClient::ControlClient(const Address& address, Events events) {
  quiet_grpc();
  stream_ = std::make_unique<Stream>(address, std::move(events));
  stream_->start();
}
ControlClient::~ControlClient() {
  // Rather a leak than a crash.
  if (!stream_->detach()) static_cast<void>(stream_.release());
}
void ControlClient::send(const wire::ToCoordinator& message) { stream_->send(message); }

}  // namespace virga::cluster
