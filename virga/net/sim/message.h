#pragma once

#include <memory>
#include <vector>

#include "virga/net/mailbox.h"
#include "virga/net/sim/world.h"

namespace virga::net::sim {

// One message in flight. It owns a copy of the payload, as a kernel's socket buffer would; phantoms have none.
struct World::Message {
  Message(Rank from, Rank to, TransferPtr transfer) : from(from), to(to), transfer(std::move(transfer)) {
    const Buffer& buffer = this->transfer->buffer();
    if (!buffer.phantom()) payload.assign(buffer.data, buffer.data + buffer.bytes);
  }

  size_t wire_bytes() const { return transfer->buffer().bytes + sizeof(Header); }
  // Given up by its sender before the last byte left.
  bool dropped() const { return transfer->finished() && transfer->error().has_value(); }

  const Rank from;
  const Rank to;
  const TransferPtr transfer;
  std::vector<std::byte> payload;
};

class SimArrival final : public Arrival {
 public:
  SimArrival(const Header& header, size_t bytes, std::vector<std::byte> payload)
      : Arrival(header, bytes), payload_(std::move(payload)) {}

  void deliver(const TransferPtr& receive) override {
    const Buffer& to = receive->buffer();
    if (!to.phantom() && !phantom()) receive->take(payload_.data());
    receive->finish();
  }

 private:
  // What waits for it may know better: a rank that has no elements itself can't tell that others' are phantoms.
  bool phantom() const { return payload_.empty() && bytes() > 0; }

  std::vector<std::byte> payload_;
};

}  // namespace virga::net::sim
