#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "virga/base/ids.h"

namespace virga::cluster {

// What the launcher says about this process. A job of one rank has no rendezvous (empty host, port
// 0).
struct LaunchInfo {
  std::string launcher;  // "torchrun", "environment", "open mpi", "slurm" or "single"
  Rank rank = 0;
  int world_size = 1;
  int local_rank = 0;           // among the ranks that were started on this host
  int local_world_size = 1;     // how many those are
  std::string rendezvous_host;  // a name or an address, IPv6 without brackets
  int rendezvous_port = 0;
  std::string job;           // tells this job from another one at the same address; empty if nobody named it
  bool agent_store = false;  // torchrun's agent keeps a store at MASTER_PORT: rank 0 may publish a port there
};

using GetEnvironment = std::function<std::optional<std::string>(std::string_view)>;

// Reads the job from the first of these that is there; an empty variable counts as not set:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (torchrun, `virga run`, `virga lab`, Kubernetes
//   operators, which
//     set no LOCAL_ variables and start one rank per host);
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE (mpirun);
//   SLURM_PROCID, _NTASKS, _LOCALID and the tasks per node (srun);
// else the job is this one process.
//
// The rendezvous is VIRGA_RENDEZVOUS (host:port, IPv6 in brackets); else MASTER_ADDR at MASTER_PORT
// + 1, since torchrun's agent and DDP need MASTER_PORT itself; under Slurm else the first host of
// the node list, under Open MPI this host if all ranks are on it, or that of mpirun if rank 0 is
// there and it has one address, at a port made from the job id. The job's name is VIRGA_JOB_ID or
// what the launcher calls it.
//
// Throws kInvalidArgument that names the variable and its value: not a number, out of range, ranks
// that contradict each other, or a set of variables of which some are missing.
LaunchInfo read_launch_environment(const GetEnvironment& get_environment);

// The same from this process's environment.
LaunchInfo read_launch_environment();

struct HostPort {
  std::string host;
  int port;
};
// "name:port", "10.0.0.1:port" or "[fe80::1]:port"; `variable` is what errors call it.
HostPort parse_host_port(std::string_view variable, const std::string& text);

// The first host of Slurm's list notation: "node[03-05,7],login" gives "node03". Throws
// kInvalidArgument.
std::string first_slurm_host(const std::string& node_list);

// How many tasks Slurm runs on node number `node` by its notation "2(x3),1". Throws
// kInvalidArgument.
int slurm_tasks_on_node(const std::string& tasks_per_node, int node);

}  // namespace virga::cluster
