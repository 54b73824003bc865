#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "virga/cluster/address.h"

// The control plane's only use of gRPC: streams of messages. Events come on gRPC's threads, one at
// a time for each stream, and must not block.
namespace virga::cluster {

namespace wire {
class FromCoordinator;
class ToCoordinator;
}  // namespace wire

class ControlServer {
 public:
  using LinkId = uint64_t;  // counts from 1; never used twice
  struct Events {
    std::function<void(LinkId)> opened;
    std::function<void(LinkId, std::shared_ptr<const wire::ToCoordinator>)> received;
    std::function<void(LinkId)> closed;  // also after close()
  };

  // Binds exactly these addresses, all at one port; if it is 0 the system chooses. Throws
  // kUnavailable.
  ControlServer(const std::vector<Address>& addresses, Events events);
  // Gives streams that are closing 500 ms to deliver what was sent, then breaks them. No event
  // comes afterwards.
  ~ControlServer();

  int port() const;
  // Fine for links that are closed already.
  void send(LinkId link, const wire::FromCoordinator& message);
  // Ends the stream after what was sent.
  void close(LinkId link);

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

class ControlClient {
 public:
  struct End {
    bool foreign;  // a gRPC server answered that knows no Virga
    std::string text;
  };
  struct Events {
    std::function<void(std::shared_ptr<const wire::FromCoordinator>)> received;
    std::function<void(const End&)> closed;
  };

  // Begins to connect; what is sent meanwhile waits.
  ControlClient(const Address& address, Events events);
  // Breaks the stream. No event comes afterwards.
  ~ControlClient();

  void send(const wire::ToCoordinator& message);

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace virga::cluster
