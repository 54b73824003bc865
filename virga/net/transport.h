#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "virga/base/error.h"
#include "virga/base/ids.h"
#include "virga/net/header.h"
#include "virga/runtime/cancel.h"
#include "virga/runtime/clock.h"
#include "virga/runtime/event.h"
#include "virga/runtime/loop.h"
#include "virga/runtime/task.h"

namespace virga::net {

// Memory that a message comes from or goes to. A *phantom* buffer has bytes but no data: the simulator moves its
// size without its content, so that thousands of ranks of a large model fit in one process.
struct Buffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool phantom() const { return data == nullptr && bytes > 0; }
  Buffer part(size_t offset, size_t length) const { return {data == nullptr ? nullptr : data + offset, length}; }
};
struct ConstBuffer {
  const std::byte* data = nullptr;
  size_t bytes = 0;

  ConstBuffer() = default;
  ConstBuffer(const std::byte* data, size_t bytes) : data(data), bytes(bytes) {}
  ConstBuffer(const Buffer& buffer)
      : data(buffer.data), bytes(buffer.bytes) {}  // NOLINT: what can be written can be read

  bool phantom() const { return data == nullptr && bytes > 0; }
};

// One message on its way in or out. The buffer belongs to the transfer until it is finished.
class Transfer {
 public:
  enum class Direction { kSend, kReceive };
  // What a receive does with its payload, which is aligned for elements of any dtype. Called once, by the transport on
  // the loop's thread; must not throw.
  using Use = std::function<void(ConstBuffer payload)>;

  Transfer(Direction direction, Rank peer, const Header& header, Buffer buffer, Use use = {})
      : direction_(direction), peer_(peer), header_(header), buffer_(buffer), use_(std::move(use)) {}
  virtual ~Transfer() = default;

  Direction direction() const { return direction_; }
  Rank peer() const { return peer_; }
  const Header& header() const { return header_; }
  const Buffer& buffer() const { return buffer_; }

  bool finished() const { return finished_.is_set(); }
  Event& finished_event() { return finished_; }
  // Why it failed; nullopt while it runs and after success.
  const std::optional<Error>& error() const { return error_; }

  // For transports: the whole payload of a receive is here, in the buffer or elsewhere.
  void take(const void* payload) {
    const bool aligned = reinterpret_cast<uintptr_t>(payload) % sizeof(double) == 0;
    if (use_ && aligned) return use_({static_cast<const std::byte*>(payload), buffer_.bytes});
    if (buffer_.bytes > 0 && payload != buffer_.data) std::memcpy(buffer_.data, payload, buffer_.bytes);
    if (use_) use_(buffer_);
  }
  // For transports: the reason that a later finish() will report, whatever the network says then.
  void set_reason(const Error& reason) {
    if (!error_) error_ = reason;
  }
  // For transports: ends it, with the earlier reason if there was one. Twice is fine, the first counts.
  void finish(const std::optional<Error>& error = std::nullopt) {
    if (finished()) return;
    if (error) set_reason(*error);
    finished_.set();
  }

 private:
  const Direction direction_;
  const Rank peer_;
  const Header header_;
  const Buffer buffer_;
  const Use use_;
  std::optional<Error> error_;
  Event finished_;
};
using TransferPtr = std::shared_ptr<Transfer>;

// Payload bytes and messages exchanged with one peer, headers not counted.
struct Traffic {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
};

// Moves messages between the ranks of one job. The contract, held by one test suite for every implementation:
//
//  - Loop thread only. Nothing blocks; nothing resumes a coroutine except through the ready queue.
//  - A receive gets the message whose (source, group, operation, chunk) equal its own; several with the same address
//    match in the order they were sent. A message may come before its receive: it waits in a bounded queue.
//  - The payload must have exactly the size of the receive's buffer and the headers must agree, else the receive
//    fails with kMismatch.
//  - A receive with a `use` hands it the payload, wherever it lies: its buffer may stay as it was.
//  - A successful send says that the buffer is free, not that the peer lives.
//  - cancel() makes a transfer finish soon with the given error, if it has not ended by then; its buffer is free only
//  when
//    it is finished. Giving up a transfer that is on the wire may cost the connection to that peer.
//  - When a peer is known to be lost, all its transfers fail with kPeerLost, as do later ones.
class Transport {
 public:
  // Looks at a message when it arrives; an error means that it can't be right.
  using ArrivalCheck = std::function<std::optional<Error>(const Header&)>;
  // Told once for every lost peer and every refused message.
  using FailureListener = std::function<void(const Error&)>;

  virtual ~Transport() = default;

  virtual Loop& loop() = 0;
  virtual Rank rank() const = 0;
  virtual int world_size() const = 0;

  virtual TransferPtr send(Rank to, const Header& header, ConstBuffer payload) = 0;
  virtual TransferPtr receive(Rank from, const Header& expected, Buffer payload, Transfer::Use use) = 0;
  TransferPtr receive(Rank from, const Header& expected, Buffer payload) {
    return receive(from, expected, payload, {});
  }
  virtual void cancel(const TransferPtr& transfer, const Error& reason) = 0;

  // Closes the way to a peer by force: everything with it fails with `reason`, now and later.
  virtual void fail_peer(Rank peer, const Error& reason) = 0;

  virtual Traffic traffic(Rank peer) const = 0;

  virtual void set_arrival_check(ArrivalCheck check) = 0;
  virtual void set_failure_listener(FailureListener listener) = 0;
  // Applies `check` to every message that waits for its receive: for checks that become possible later.
  virtual void recheck_waiting(OpNumber operation) = 0;
};

// Waits for a transfer. Throws its error; kDeadlineExceeded when the deadline passes; the scope's reason when the scope
// is cancelled. In every case the buffer is free when this returns or throws.
Task<void> finish(Transport& transport, TransferPtr transfer, Deadline deadline, CancelScope& scope);

}  // namespace virga::net
