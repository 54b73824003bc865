#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "virga/lab/crew.h"
#include "virga/lab/namespace.h"
#include "virga/lab/network.h"
#include "virga/lab/report.h"

// An emulated cluster on one machine: every host is a set of namespaces, every link is shaped.
// Needs root.
namespace virga::lab {

struct LabOptions {
  int hosts = 2;               // 1..64
  int ranks_per_host = 1;      // 1..64
  std::string rate = "1gbit";  // of every host's link, each way; see parse_rate
  CrewOptions crew;
};

// Usage:
//   Lab lab(options);
//   lab.start({"build/bin/program", "--flag"});
//   lab.wait_for_output(1, "ready", 10);  // with Output::kCapture
//   lab.signal(1, SIGKILL);               // or lab.cut(0), ...
//   Report report = lab.wait();
//
// Rank r is local rank r % ranks_per_host on host r / ranks_per_host, named "host0", "host1", ...
// Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and
// MASTER_PORT in their environment. Ranks of one host share its namespaces; hosts share only the
// file system (except /proc, /sys, /dev/shm, /etc/hosts) and the clock. When the lab or its process
// goes, in whatever way, the kernel ends all its processes and removes all its devices.
class Lab {
 public:
  // Builds the cluster. Throws kInvalidArgument for options out of range and kUnavailable, with
  // what to do, where privilege, a tool or a kernel feature is missing; then nothing is left
  // behind.
  explicit Lab(const LabOptions& options);

  // Starts the command once per rank, `extra` on top of the environment. Once only.
  void start(const Arguments& command, const Environment& extra = {});

  // Faults. A signal reaches the rank and its process group; cut() pulls the cable of a host,
  // heal() puts it back.
  void signal(int rank, int signal_number) { crew_.signal(rank, signal_number); }
  void cut(int host) { set_link(host, false); }
  void heal(int host) { set_link(host, true); }

  // See Crew.
  bool wait_for_output(int rank, std::string_view text, double seconds) {
    return crew_.wait_for_output(rank, text, seconds);
  }

  const std::string& output(int rank) const { return crew_.output(rank); }

  // Waits for all ranks, then reads the counters.
  Report wait();

  int hosts() const { return options_.hosts; }
  Traffic traffic(int host) const { return switch_.traffic(host); }
  std::string address(int host) const { return Switch::address(host); }

 private:
  void set_link(int host, bool up);
  Environment rank_environment(int rank, const Environment& extra) const;

  LabOptions options_;
  std::uint64_t rate_bits_per_second_;
  Arguments command_;
  // In this order: the kernel lets a machine go only after its ranks have been reaped.
  std::vector<Machine> machines_;
  Switch switch_;
  Crew crew_;
};

// Throws kUnavailable, with what to do, where this machine can't run a lab: not root, no `ip` or
// `tc`.
void require_lab_support();

}  // namespace virga::lab
