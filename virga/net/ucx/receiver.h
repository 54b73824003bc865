#pragma once

#include <memory>
#include <ucp/api/ucp.h>

#include "virga/net/mailbox.h"
#include "virga/net/transport.h"

namespace virga::net::ucx {

// Who takes what comes in: the transport.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual bool accepts_from(Rank source) const = 0;
  virtual void arrived(std::unique_ptr<Arrival> arrival) = 0;
  virtual void refused(const Error& error) = 0;
  virtual void peer_left(Rank source) = 0;
  // The payload is in the receive's buffer.
  virtual void delivered(const TransferPtr& receive) = 0;
  // Asks UCX to move an announced payload into the receive's buffer.
  virtual void fetch(ucp_worker_h worker, void* descriptor, const TransferPtr& receive) = 0;
};

}  // namespace virga::net::ucx
