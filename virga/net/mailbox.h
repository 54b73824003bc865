#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>

#include "virga/net/transport.h"

namespace virga::net {

// A message that has come in. What holds its bytes is the transport's business.
class Arrival {
 public:
  Arrival(const Header& header, size_t bytes) : header_(header), bytes_(bytes) {}
  virtual ~Arrival() = default;  // drops the payload if nobody took it

  const Header& header() const { return header_; }
  size_t bytes() const { return bytes_; }

  // Moves the payload to the receive's buffer and finishes it, now or later.
  virtual void deliver(const TransferPtr& receive) = 0;
  // Called once if nobody expects the message yet: whatever is only lent by the network must now be made to last.
  virtual void keep() {}

 private:
  const Header header_;
  const size_t bytes_;
};

// Matches messages with receives: the half of a transport that is the same in every world. It holds the receives that
// wait and, bounded, the messages that came early.
class Mailbox {
 public:
  struct Limits {
    size_t waiting_bytes = size_t{1} << 30;
    size_t waiting_messages = 1 << 16;
  };

  Mailbox(int world_size, Limits limits) : world_size_(world_size), limits_(limits) {}

  void set_arrival_check(Transport::ArrivalCheck check) { check_ = std::move(check); }
  void set_failure_listener(Transport::FailureListener listener) { listener_ = std::move(listener); }
  const Transport::FailureListener& failure_listener() const { return listener_; }

  // A receive that starts: it takes a message that waits, or waits itself.
  void expect(const TransferPtr& receive);
  // A message that comes in. A bad one is reported and dropped, never delivered.
  void arrive(std::unique_ptr<Arrival> arrival);

  // Takes a receive that still waits out of the books and finishes it; false if it isn't waiting any more.
  bool give_up(const TransferPtr& receive, const Error& reason);
  // The same for all that wait for one peer.
  void give_up_peer(Rank peer, const Error& reason);

  void recheck_waiting(OpNumber operation);

  // Whether some receive still waits for its message.
  bool expects_anything() const { return !receives_.empty(); }

 private:
  struct Address {
    Rank source;
    uint32_t group;
    OpNumber operation;
    uint64_t chunk;
    bool operator==(const Address&) const = default;
  };
  struct AddressHash {
    size_t operator()(const Address& address) const;
  };
  static Address address_of(Rank source, const Header& header) {
    return {source, header.group, header.operation, header.chunk};
  }

  bool admit(const Arrival& arrival);
  void deliver_checked(std::unique_ptr<Arrival> arrival, const TransferPtr& receive);
  void report(const Error& error);

  const int world_size_;
  const Limits limits_;
  Transport::ArrivalCheck check_;
  Transport::FailureListener listener_;
  std::unordered_map<Address, std::deque<TransferPtr>, AddressHash> receives_;
  std::unordered_map<Address, std::deque<std::unique_ptr<Arrival>>, AddressHash> waiting_;
  size_t waiting_bytes_ = 0;
  size_t waiting_messages_ = 0;
};

}  // namespace virga::net
