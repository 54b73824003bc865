#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "virga/cluster/comm.h"
#include "virga/cluster/control.h"
#include "virga/cluster/launch.h"

namespace virga::cluster {

struct JobOptions {
  std::vector<Setting> settings;  // what must be equal on all ranks, compared when they meet
  Duration meeting_timeout = std::chrono::seconds(60);
  Duration operation_timeout = std::chrono::seconds(60);
  std::function<void(const std::string&)> on_progress;  // told while ranks are missing; default: standard error
};

// This process's place in a real job: the loop's thread, the worker's, the transport and the line to rank 0. The main
// thread hands tasks to it and goes on.
class Job {
 public:
  // Joins the job that the launcher's environment describes; blocks until all ranks have come.
  // VIRGA_RENDEZVOUS_TIMEOUT_SECONDS and VIRGA_OPERATION_TIMEOUT_SECONDS override the options. Throws what
  // Control::meet throws, kInvalidArgument for a wrong environment.
  explicit Job(JobOptions options = {});
  // Says goodbye. Tasks that still run are aborted, and waited for.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Rank rank() const;
  int world_size() const;
  int local_world_size() const;
  const Topology& topology() const;
  const std::vector<MemberInfo>& members() const;

  // Runs a task on the loop with this rank's Comm; the future gets its end or its error. Tasks begin in the order of
  // the calls.
  std::future<void> start(std::function<Task<void>(Comm&)> make);
  // The same, and waits.
  void run(std::function<Task<void>(Comm&)> make) { start(std::move(make)).get(); }

  // Every rank gives a text and gets those of all, in rank order; for small agreements. See Control::exchange.
  std::vector<std::string> exchange(std::string_view key, std::string value);

  // Throws kMismatch on every rank, naming ranks and values, unless all give the same value for this setting.
  void require_equal(std::string_view setting, std::string value);

  // Ends the job on all ranks, for failures that this rank finds outside of an operation.
  void fail_everywhere(const Error& error);

  // Payload bytes that this rank has sent to other hosts so far.
  uint64_t inter_host_bytes();

  // The operation ring, and who is waited for: what SIGUSR1 and a passed deadline print.
  std::string dump();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace virga::cluster
