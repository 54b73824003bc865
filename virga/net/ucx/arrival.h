#pragma once

#include <cstddef>
#include <ucp/api/ucp.h>
#include <vector>

#include "virga/net/mailbox.h"
#include "virga/net/ucx/receiver.h"

namespace virga::net::ucx {

// A message whose payload has come with it.
class WholeMessage final : public Arrival {
 public:
  // What UCX must be told when its callback ends; both are null for messages that don't come from
  // UCX.
  struct Lender {
    ucp_worker_h worker = nullptr;
    bool* held = nullptr;  // set to true if we hold the data longer; valid only until keep() returns
  };

  WholeMessage(const Header& header, const void* data, size_t bytes, Receiver& receiver)
      : WholeMessage(header, data, bytes, receiver, Lender()) {}
  WholeMessage(const Header& header, const void* data, size_t bytes, Receiver& receiver, Lender lender)
      : Arrival(header, bytes), receiver_(receiver), data_(data), lender_(lender) {}
  ~WholeMessage() override;

  void deliver(const TransferPtr& receive) override;
  void keep() override;

 private:
  Receiver& receiver_;
  const void* data_;
  const Lender lender_;
  std::vector<std::byte> copy_;
  bool holds_ = false;
};

// A message whose sender waits until we fetch the payload.
class AnnouncedMessage final : public Arrival {
 public:
  AnnouncedMessage(const Header& header, void* descriptor, size_t bytes, Receiver& receiver,
                   WholeMessage::Lender lender)
      : Arrival(header, bytes), receiver_(receiver), descriptor_(descriptor), lender_(lender) {}
  ~AnnouncedMessage() override;

  void deliver(const TransferPtr& receive) override;
  void keep() override;

 private:
  Receiver& receiver_;
  void* descriptor_;
  const WholeMessage::Lender lender_;
  bool holds_ = false;
};

}  // namespace virga::net::ucx
