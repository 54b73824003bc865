#include "virga/lab/lab.h"

#include <unistd.h>

#include "virga/base/error.h"

namespace virga::lab {
namespace {

constexpr int kMostHosts = 64;
constexpr int kMostRanksPerHost = 64;
// The network of host 0 is new and empty, so this port and its neighbours are free there.
constexpr int kMasterPort = 29500;

const LabOptions& checked(const LabOptions& options) {
  require(options.hosts >= 1 && options.hosts <= kMostHosts, "a lab has 1 to {} hosts, not {}", kMostHosts,
          options.hosts);
  require(options.ranks_per_host >= 1 && options.ranks_per_host <= kMostRanksPerHost,
          "a host of a lab has 1 to {} ranks, not {}", kMostRanksPerHost, options.ranks_per_host);
  return options;
}

std::string host_name(int host) { return fmt::format("host{}", host); }

std::string hosts_file(int hosts) {
  std::string text = "127.0.0.1 localhost\n";
  for (int host = 0; host < hosts; ++host) {
    text += fmt::format("{} {}\n", Switch::address(host), host_name(host));
  }
  return text;
}

std::vector<Machine> make_machines(int hosts) {
  require_lab_support();
  std::vector<Machine> machines;
  machines.reserve(static_cast<size_t>(hosts));
  for (int host = 0; host < hosts; ++host) machines.emplace_back(host_name(host), hosts_file(hosts));
  return machines;
}

}  // namespace

void require_lab_support() {
  if (::geteuid() != 0) {
    fail(ErrorCode::kUnavailable,
         "a lab needs root, because it makes network namespaces and shapes links: run it with sudo");
  }
  for (const char* tool : {"ip", "tc"}) {
    if (find_tool(tool).empty()) {
      fail(ErrorCode::kUnavailable, "a lab needs the program '{}': apt install iproute2", tool);
    }
  }
}

Lab::Lab(const LabOptions& options)
    : options_(checked(options)),
      rate_bits_per_second_(parse_rate(options.rate)),
      machines_(make_machines(options.hosts)),
      switch_(machines_, rate_bits_per_second_),
      crew_(options.crew) {}

Environment Lab::rank_environment(int rank, const Environment& extra) const {
  const int per_host = options_.ranks_per_host;
  Environment environment = {{"RANK", std::to_string(rank)},
                             {"WORLD_SIZE", std::to_string(options_.hosts * per_host)},
                             {"LOCAL_RANK", std::to_string(rank % per_host)},
                             {"LOCAL_WORLD_SIZE", std::to_string(per_host)},
                             {"GROUP_RANK", std::to_string(rank / per_host)},
                             {"MASTER_ADDR", Switch::address(0)},
                             {"MASTER_PORT", std::to_string(kMasterPort)}};
  environment.insert(environment.end(), extra.begin(), extra.end());
  return environment;
}

void Lab::start(const Arguments& command, const Environment& extra) {
  require(crew_.size() == 0, "this lab has started its ranks already");
  command_ = command;
  for (int rank = 0; rank < options_.hosts * options_.ranks_per_host; ++rank) {
    SpawnOptions spawn_options;
    spawn_options.argv = command;
    spawn_options.environment = rank_environment(rank, extra);
    spawn_options.namespaces = &machines_[rank / options_.ranks_per_host].namespaces();
    crew_.add(std::move(spawn_options));
  }
}

void Lab::set_link(int host, bool up) {
  require(host >= 0 && host < options_.hosts, "there is no host {} among {}", host, options_.hosts);
  switch_.set_link(host, up);
}

Report Lab::wait() {
  Report report;
  report.result = crew_.wait();
  report.command = command_;
  report.rate_bits_per_second = rate_bits_per_second_;
  report.ranks_per_host = options_.ranks_per_host;
  for (int host = 0; host < options_.hosts; ++host) {
    report.hosts.push_back({machines_[host].name(), Switch::address(host), switch_.traffic(host)});
  }
  return report;
}

}  // namespace virga::lab
