#include "virga/cluster/launch.h"

#include <charconv>
#include <cstdlib>
#include <limits>

#include "virga/base/error.h"
#include "virga/base/hash.h"

namespace virga::cluster {
namespace {

constexpr int kMaxRanks = 1 << 24;
constexpr int kMaxPort = 65535;

// Where jobs meet if nobody chose a port: below the range that systems give out themselves.
constexpr int kFirstPort = 20000;
constexpr int kPorts = 10000;

class Environment {
 public:
  explicit Environment(const GetEnvironment& get) : get_(get) {}

  std::optional<std::string> text(std::string_view name) const {
    auto value = get_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }
  bool has(std::string_view name) const { return text(name).has_value(); }

  std::string needed_text(std::string_view name, std::string_view because) const {
    if (auto value = text(name)) return *value;
    fail(ErrorCode::kInvalidArgument, "{} is missing from the environment, though {}", name, because);
  }

  std::optional<int64_t> number(std::string_view name, int64_t least, int64_t most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int64_t result = 0;
    const char* const last = value->data() + value->size();
    const auto [end, error] = std::from_chars(value->data(), last, result);
    require(error == std::errc() && end == last, "{}={} is not a whole number", name, *value);
    require(result >= least && result <= most, "{}={} is outside {} to {}", name, *value, least, most);
    return result;
  }

  int needed_number(std::string_view name, int64_t least, int64_t most, std::string_view because) const {
    if (auto value = number(name, least, most)) return static_cast<int>(*value);
    fail(ErrorCode::kInvalidArgument, "{} is missing from the environment, though {}", name, because);
  }

  // The first of the names that is set; empty if none is.
  std::string first_of(std::initializer_list<std::string_view> names) const {
    for (std::string_view name : names) {
      if (auto value = text(name)) return *value;
    }
    return {};
  }

 private:
  const GetEnvironment& get_;
};

struct RankNames {
  std::string_view rank, world_size, local_rank, local_world_size;
};
constexpr RankNames kTorchNames{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr RankNames kOpenMpiNames{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE"};

void check_ranks(const LaunchInfo& info, const RankNames& names) {
  require(info.rank < info.world_size, "{}={} is not below {}={}", names.rank, info.rank, names.world_size,
          info.world_size);
  require(info.local_rank < info.local_world_size, "{}={} is not below {}={}", names.local_rank, info.local_rank,
          names.local_world_size, info.local_world_size);
  require(info.local_world_size <= info.world_size, "{}={} is above {}={}", names.local_world_size,
          info.local_world_size, names.world_size, info.world_size);
}

LaunchInfo read_ranks(const Environment& environment, const RankNames& names) {
  LaunchInfo info;
  info.rank = environment.needed_number(names.rank, 0, kMaxRanks - 1, fmt::format("{} is set", names.world_size));
  info.world_size = environment.needed_number(names.world_size, 1, kMaxRanks, fmt::format("{} is set", names.rank));
  if (environment.has(names.local_rank) || environment.has(names.local_world_size)) {
    info.local_rank =
        environment.needed_number(names.local_rank, 0, kMaxRanks - 1, fmt::format("{} is set", names.local_world_size));
    info.local_world_size =
        environment.needed_number(names.local_world_size, 1, kMaxRanks, fmt::format("{} is set", names.local_rank));
  }
  check_ranks(info, names);
  return info;
}

LaunchInfo read_torch(const Environment& environment) {
  LaunchInfo info = read_ranks(environment, kTorchNames);
  info.launcher = environment.has("TORCHELASTIC_RUN_ID") ? "torchrun" : "environment";
  info.agent_store = environment.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  info.job = environment.first_of({"TORCHELASTIC_RUN_ID"});
  return info;
}

LaunchInfo read_open_mpi(const Environment& environment) {
  LaunchInfo info = read_ranks(environment, kOpenMpiNames);
  info.launcher = "open mpi";
  info.job = environment.first_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  return info;
}

int read_slurm_local_size(const Environment& environment, std::string_view because) {
  const std::string tasks = environment.first_of({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!tasks.empty()) {
    const auto node = environment.number("SLURM_NODEID", 0, kMaxRanks - 1);
    return slurm_tasks_on_node(tasks, static_cast<int>(node.value_or(0)));
  }
  return environment.needed_number("SLURM_NTASKS_PER_NODE", 1, kMaxRanks, because);
}

LaunchInfo read_slurm(const Environment& environment) {
  constexpr std::string_view kBecause = "SLURM_PROCID is set";
  LaunchInfo info;
  info.launcher = "slurm";
  info.rank = environment.needed_number("SLURM_PROCID", 0, kMaxRanks - 1, "SLURM_NTASKS is set");
  info.world_size = environment.needed_number("SLURM_NTASKS", 1, kMaxRanks, kBecause);
  info.local_rank = environment.needed_number("SLURM_LOCALID", 0, kMaxRanks - 1, kBecause);
  info.local_world_size = read_slurm_local_size(environment, kBecause);
  check_ranks(info, {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"});
  info.job = environment.first_of({"SLURM_JOB_ID"});
  const std::string step = environment.first_of({"SLURM_STEP_ID"});
  if (!step.empty()) info.job += "." + step;
  return info;
}

LaunchInfo read_launcher(const Environment& environment) {
  const auto has_any = [&](const RankNames& names) {
    return environment.has(names.rank) || environment.has(names.world_size);
  };
  if (has_any(kTorchNames)) return read_torch(environment);
  if (has_any(kOpenMpiNames)) return read_open_mpi(environment);
  if (environment.has("SLURM_PROCID")) return read_slurm(environment);
  LaunchInfo info;
  info.launcher = "single";
  return info;
}

// MASTER_PORT itself is torchrun's.
int port_after_master(const Environment& environment, std::string_view because) {
  const int port = environment.needed_number("MASTER_PORT", 1, kMaxPort, because);
  require(port < kMaxPort,
          "MASTER_PORT={} leaves no port for Virga, which meets at MASTER_PORT + 1: choose a lower "
          "one or "
          "set VIRGA_RENDEZVOUS=host:port",
          port);
  return port + 1;
}

HostPort read_slurm_rendezvous(const Environment& environment) {
  constexpr std::string_view kBecause = "Slurm started this rank and neither VIRGA_RENDEZVOUS nor MASTER_ADDR is set";
  const std::string nodes = environment.first_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (nodes.empty()) environment.needed_text("SLURM_JOB_NODELIST", kBecause);
  if (environment.has("MASTER_PORT")) {
    return {first_slurm_host(nodes), port_after_master(environment, kBecause)};
  }
  environment.needed_text("SLURM_JOB_ID", kBecause);
  const int64_t job = *environment.number("SLURM_JOB_ID", 0, std::numeric_limits<int64_t>::max());
  return {first_slurm_host(nodes), kFirstPort + static_cast<int>(job % kPorts)};
}

// The address in "329056256.0;tcp://10.0.0.2:56369;tcp6://[fd00::2]:44009", which is where mpirun itself runs; empty if
// there is not just one.
std::string mpirun_address(const std::string& uri) {
  constexpr std::string_view kScheme = ";tcp://";
  const size_t scheme = uri.find(kScheme);
  if (scheme == std::string::npos) return {};
  const size_t begin = scheme + kScheme.size();
  const std::string address = uri.substr(begin, uri.find(':', begin) - begin);
  return address.find(',') == std::string::npos ? address : "";
}

// Open MPI tells ranks where mpirun runs, not where rank 0 does; mostly that is the same machine, and rank 0 knows.
std::optional<HostPort> read_open_mpi_rendezvous(const Environment& environment, const LaunchInfo& info) {
  const int port = kFirstPort + static_cast<int>(fnv1a(info.job) % kPorts);
  if (info.local_world_size == info.world_size) return HostPort{"127.0.0.1", port};
  const std::string mpirun = environment.first_of({"OMPI_MCA_orte_hnp_uri"});
  const bool elsewhere = info.rank == 0 && environment.first_of({"OMPI_MCA_orte_local_daemon_uri"}) != mpirun;
  const std::string address = mpirun_address(mpirun);
  if (address.empty() || elsewhere) return std::nullopt;
  return HostPort{address, port};
}

HostPort read_rendezvous(const Environment& environment, const LaunchInfo& info) {
  if (auto text = environment.text("VIRGA_RENDEZVOUS")) return parse_host_port("VIRGA_RENDEZVOUS", *text);
  if (auto host = environment.text("MASTER_ADDR")) {
    return {*host, port_after_master(environment, "MASTER_ADDR is set")};
  }
  if (info.launcher == "slurm") return read_slurm_rendezvous(environment);
  if (info.launcher == "open mpi") {
    if (auto place = read_open_mpi_rendezvous(environment, info)) return *place;
  }
  fail(ErrorCode::kInvalidArgument,
       "{} ranks don't know where to meet: MASTER_ADDR is missing from the environment; set "
       "MASTER_ADDR and "
       "MASTER_PORT, or VIRGA_RENDEZVOUS=host:port, to where rank 0 runs{}",
       info.world_size, info.launcher == "open mpi" ? " (mpirun -x VIRGA_RENDEZVOUS=host:port)" : "");
}

}  // namespace

HostPort parse_host_port(std::string_view variable, const std::string& text) {
  const size_t colon = text.rfind(':');
  require(colon != std::string::npos && colon > 0 && colon + 1 < text.size(), "{}={} is not host:port", variable, text);
  HostPort result{text.substr(0, colon), 0};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + colon + 1, last, result.port);
  require(error == std::errc() && end == last && result.port >= 1 && result.port <= kMaxPort,
          "{}={}: the port must be a number from 1 to 65535", variable, text);
  if (result.host.front() == '[') {
    require(result.host.size() > 2 && result.host.back() == ']', "{}={}: '[' without ']'", variable, text);
    result.host = result.host.substr(1, result.host.size() - 2);
  } else {
    require(result.host.find(':') == std::string::npos, "{}={}: an IPv6 address stands in brackets: [address]:port",
            variable, text);
  }
  return result;
}

LaunchInfo read_launch_environment(const GetEnvironment& get_environment) {
  const Environment environment(get_environment);
  LaunchInfo info = read_launcher(environment);
  if (auto job = environment.text("VIRGA_JOB_ID")) info.job = *job;
  if (info.world_size == 1) return info;
  HostPort rendezvous = read_rendezvous(environment, info);
  info.rendezvous_host = std::move(rendezvous.host);
  info.rendezvous_port = rendezvous.port;
  return info;
}

LaunchInfo read_launch_environment() {
  return read_launch_environment([](std::string_view name) -> std::optional<std::string> {
    const char* const value = std::getenv(std::string(name).c_str());
    if (!value) return std::nullopt;
    return value;
  });
}

}  // namespace virga::cluster
