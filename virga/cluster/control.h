#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "virga/base/error.h"
#include "virga/base/ids.h"
#include "virga/runtime/clock.h"

namespace virga::cluster {

// One line of what all ranks must have in common: {"strategy", "hitopk"}.
struct Setting {
  std::string name{};
  std::string value{};
};

// What a rank tells the others about itself. Bounds: names and identity 256 bytes, address 64 KiB,
// 256 settings of at most 4 KiB.
struct MemberInfo {
  Rank rank = 0;
  int local_rank = 0;
  std::string host_identity{};  // see host_identity()
  std::string host_name{};
  std::string transport_address{};     // bytes that only the transport understands
  std::vector<Setting> fingerprint{};  // the meeting fails unless it is the same on all ranks
};

// Why the job ends: told to every rank.
struct Abort {
  Epoch epoch = 0;
  ErrorCode code = ErrorCode::kAborted;
  std::string operation{};  // what was going on; may be empty
  Rank culprit = -1;        // whom to blame; -1 if nobody in particular
  std::string reason{};
  Rank reporter = -1;  // who noticed; Control fills it in
};

// The abort as the error that ends operations: with its code and its culprit.
Error to_error(const Abort& abort);
// A failure as it is reported: the message is the reason.
Abort to_abort(const Error& error, Epoch epoch);

struct ControlOptions {
  int world_size = 1;
  int local_world_size = 1;  // if it is less than world_size, a loopback address can't be the meeting place
  Epoch epoch = 1;
  std::string job;  // ranks of differently named jobs don't meet
  std::string rendezvous_host;
  int rendezvous_port = 0;  // on rank 0, 0 lets the system choose: see Control::port
  MemberInfo self;
  Duration heartbeat_period = std::chrono::seconds(1);
  Duration heartbeat_timeout = std::chrono::seconds(10);
  Duration meeting_timeout = std::chrono::seconds(60);
  Duration progress_period = std::chrono::seconds(5);
  Duration leave_timeout = std::chrono::seconds(10);
  // Told every progress_period for whom the meeting still waits. From Control's thread; must not
  // throw.
  std::function<void(const std::string&)> on_progress;
};

// One rank's line to the job: rank 0 runs a server that the others hold a stream to. The server
// binds the addresses of rendezvous_host and nothing else. A job of one rank opens no port.
//
// Who died: both ends of a stream send heartbeats. A rank whose stream breaks without a goodbye is
// lost at once; one that is silent for heartbeat_timeout is lost then. Rank 0 tells every rank the
// first failure; if rank 0 is the lost one, each rank finds that out for itself.
//
// Whom to blame: a report that a deadline passed (kDeadlineExceeded) blames whoever was waited for,
// who may be waiting in turn. Rank 0 therefore asks all ranks for a sign of life and waits 200 ms
// for a better founded report. A rank that stays silent for three heartbeats is the culprit; else
// the blame passes along the reports (A waits for B, B for C) to the one that reports nobody. Every
// other report counts at once.
//
// Messages are plain text to whoever reads the network, and anybody who reaches the port can join
// or end the meeting: for trusted networks only.
class Control {
 public:
  // On rank 0: opens the server. Throws kUnavailable if the port is in use, if the host is none of
  // this machine's or can't be resolved; kInvalidArgument if it is a loopback address and the job
  // spans several hosts.
  explicit Control(const ControlOptions& options);
  // leave().
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // The rendezvous port; on rank 0 the one that is bound.
  int port() const;

  // Blocks until all ranks have come; returns them in rank order. Throws, on every rank that came:
  // kDeadlineExceeded with the missing ranks; kMismatch if a rank came twice, world sizes or
  // fingerprints differ; kPeerLost if a rank was lost meanwhile. Throws kMismatch on this rank
  // alone if another job or another program answers at the meeting place.
  std::vector<MemberInfo> meet();

  // Every rank gives a value for `key` (at most 256 bytes) and gets the values of all in rank
  // order: for small agreements at the start. All values together may have kMaxExchangeBytes. Ranks
  // must call it with the same keys. If one rank's timeout passes, the job is aborted and all ranks
  // throw. After an abort it throws that one.
  std::vector<std::string> exchange(std::string_view key, std::string value, Duration timeout);
  static constexpr size_t kMaxExchangeBytes = 16 << 20;

  // Any thread; does not block: tells all ranks, this one included, that the job has failed. The
  // first report wins.
  void report(const Abort& abort);

  // Called at most once, from Control's thread, when the job is aborted after the meeting (at once
  // if it has been already). It must neither throw nor block nor call this object. When this
  // returns, an earlier listener is not called any more.
  void set_abort_listener(std::function<void(const Abort&)> listener);

  // Says goodbye: from now on this rank's end is no failure. While an exception unwinds the stack
  // it first reports that this rank has failed. Rank 0 stays until all others have left or are
  // lost, for at most leave_timeout. Later calls do nothing.
  void leave();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace virga::cluster
