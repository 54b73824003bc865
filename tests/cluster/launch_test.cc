#include "virga/cluster/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "cluster/refusal.h"

namespace virga::cluster {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string, std::less<>>;

LaunchInfo read(const Variables& variables) {
  return read_launch_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string error_of(const Variables& variables) {
  return refusal_of([&] { read(variables); });
}

Variables torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"}};
}
Variables open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"VIRGA_RENDEZVOUS", "10.1.2.3:4000"}};
}
Variables slurm() {
  return {{"SLURM_PROCID", "6"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "3"},
          {"SLURM_TASKS_PER_NODE", "2(x3),1"},
          {"SLURM_JOB_NODELIST", "node[03-05,7]"},
          {"SLURM_JOB_ID", "123456"},
          {"SLURM_STEP_ID", "2"}};
}
Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Launch, NothingSetIsAJobOfOneRank) {
  const LaunchInfo info = read({});
  EXPECT_EQ(info.launcher, "single");
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.world_size, 1);
  EXPECT_EQ(info.local_world_size, 1);
  EXPECT_EQ(info.rendezvous_port, 0);
}

TEST(Launch, ReadsTorchStyleVariablesAndMeetsBesideMasterPort) {
  const LaunchInfo info = read(torchrun());
  EXPECT_EQ(info.launcher, "environment");
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.world_size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 4);
  EXPECT_EQ(info.rendezvous_host, "node1");
  EXPECT_EQ(info.rendezvous_port, 29501);
  EXPECT_FALSE(info.agent_store);
  EXPECT_EQ(info.job, "");
}

TEST(Launch, KnowsTorchrunAndItsStore) {
  Variables variables = with(torchrun(), "TORCHELASTIC_RUN_ID", "run-7");
  EXPECT_EQ(read(variables).launcher, "torchrun");
  EXPECT_EQ(read(variables).job, "run-7");
  EXPECT_FALSE(read(variables).agent_store);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_TRUE(read(variables).agent_store);
  variables["VIRGA_JOB_ID"] = "mine";
  EXPECT_EQ(read(variables).job, "mine");
}

TEST(Launch, WithoutLocalVariablesEveryRankHasItsHost) {
  const LaunchInfo info = read(without(without(torchrun(), "LOCAL_RANK"), "LOCAL_WORLD_SIZE"));
  EXPECT_EQ(info.local_rank, 0);
  EXPECT_EQ(info.local_world_size, 1);
}

TEST(Launch, ReadsOpenMpi) {
  const LaunchInfo info = read(open_mpi());
  EXPECT_EQ(info.launcher, "open mpi");
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.world_size, 4);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_world_size, 2);
  EXPECT_EQ(info.rendezvous_host, "10.1.2.3");
  EXPECT_EQ(info.rendezvous_port, 4000);
}

TEST(Launch, ReadsSlurm) {
  const LaunchInfo info = read(slurm());
  EXPECT_EQ(info.launcher, "slurm");
  EXPECT_EQ(info.rank, 6);
  EXPECT_EQ(info.world_size, 7);
  EXPECT_EQ(info.local_rank, 0);
  EXPECT_EQ(info.local_world_size, 1);
  EXPECT_EQ(info.rendezvous_host, "node03");
  EXPECT_EQ(info.rendezvous_port, 23456);
  EXPECT_EQ(info.job, "123456.2");
  EXPECT_EQ(read(with(slurm(), "MASTER_PORT", "7000")).rendezvous_port, 7001);
  EXPECT_EQ(read(with(slurm(), "SLURM_NODEID", "2")).local_world_size, 2);
}

TEST(Launch, SlurmFallsBackOnTasksPerNodeAsAsked) {
  const Variables variables = without(slurm(), "SLURM_TASKS_PER_NODE");
  EXPECT_EQ(read(with(variables, "SLURM_NTASKS_PER_NODE", "2")).local_world_size, 2);
  EXPECT_THAT(error_of(variables), HasSubstr("SLURM_NTASKS_PER_NODE is missing"));
}

TEST(Launch, TheNearestLauncherWins) {
  Variables variables = slurm();
  variables.merge(open_mpi());
  EXPECT_EQ(read(variables).launcher, "open mpi");
  variables.merge(torchrun());
  EXPECT_EQ(read(variables).launcher, "environment");
  EXPECT_EQ(read(variables).rendezvous_host, "10.1.2.3");
}

TEST(Launch, RendezvousIsTakenAsItIs) {
  const auto at = [](const std::string& text) { return read(with(torchrun(), "VIRGA_RENDEZVOUS", text)); };
  EXPECT_EQ(at("gpu.example:29500").rendezvous_port, 29500);
  EXPECT_EQ(at("gpu.example:29500").rendezvous_host, "gpu.example");
  EXPECT_EQ(at("[fe80::1]:80").rendezvous_host, "fe80::1");
  for (const char* bad : {"gpu", "gpu:", ":80", "gpu:0", "gpu:65536", "gpu:x", "gpu:80x", "gpu:-1", "fe80::1:80",
                          "[fe80::1:80", "[]:80", "gpu: 80"}) {
    EXPECT_THAT(error_of(with(torchrun(), "VIRGA_RENDEZVOUS", bad)), HasSubstr(std::string("VIRGA_RENDEZVOUS=") + bad));
  }
}

TEST(Launch, NamesTheMissingHalf) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(error_of(without(torchrun(), name)), HasSubstr(std::string(name) + " is missing"));
    EXPECT_THAT(error_of(with(torchrun(), name, "")), HasSubstr(std::string(name) + " is missing"));
  }
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    EXPECT_THAT(error_of(without(open_mpi(), name)), HasSubstr(std::string(name) + " is missing"));
  }
  for (const char* name : {"SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_NODELIST", "SLURM_JOB_ID"}) {
    EXPECT_THAT(error_of(without(slurm(), name)), HasSubstr(std::string(name) + " is missing"));
  }
  EXPECT_THAT(error_of(without(open_mpi(), "VIRGA_RENDEZVOUS")), HasSubstr("mpirun -x VIRGA_RENDEZVOUS"));
}

TEST(Launch, OpenMpiRanksMeetWithoutBeingToldWhere) {
  Variables here = without(open_mpi(), "VIRGA_RENDEZVOUS");
  here = with(with(here, "OMPI_COMM_WORLD_LOCAL_SIZE", "4"), "OMPI_COMM_WORLD_LOCAL_RANK", "3");
  const LaunchInfo one = read(with(here, "PMIX_NAMESPACE", "329056257"));
  EXPECT_EQ(one.rendezvous_host, "127.0.0.1");
  EXPECT_GE(one.rendezvous_port, 20000);
  EXPECT_LT(one.rendezvous_port, 30000);
  EXPECT_NE(read(with(here, "PMIX_NAMESPACE", "329056258")).rendezvous_port, one.rendezvous_port);

  const std::string mpirun = "329056256.0;tcp://10.0.0.2:56369;tcp6://[fd00::2]:44009";
  Variables hosts = with(without(open_mpi(), "VIRGA_RENDEZVOUS"), "PMIX_NAMESPACE", "329056257");
  hosts = with(hosts, "OMPI_MCA_orte_hnp_uri", mpirun);
  EXPECT_EQ(read(hosts).rendezvous_host, "10.0.0.2");
  EXPECT_EQ(read(hosts).rendezvous_port, one.rendezvous_port);
  for (const char* unclear : {"329056256.0;tcp://10.0.0.2,172.17.0.1:56369", "329056256.0;usock", ";tcp://", "x"}) {
    EXPECT_THAT(error_of(with(hosts, "OMPI_MCA_orte_hnp_uri", unclear)), HasSubstr("mpirun -x VIRGA_RENDEZVOUS"));
  }
}

TEST(Launch, OpenMpiRankZeroKnowsWhetherMpirunIsOnItsHost) {
  const std::string mpirun = "7.0;tcp://10.0.0.2:56369";
  Variables first = with(without(open_mpi(), "VIRGA_RENDEZVOUS"), "OMPI_COMM_WORLD_RANK", "0");
  first = with(with(first, "OMPI_MCA_orte_hnp_uri", mpirun), "PMIX_NAMESPACE", "7");
  EXPECT_EQ(read(with(first, "OMPI_MCA_orte_local_daemon_uri", mpirun)).rendezvous_host, "10.0.0.2");
  const Variables elsewhere = with(first, "OMPI_MCA_orte_local_daemon_uri", "7.1;tcp://10.0.0.3:41000");
  EXPECT_THAT(error_of(elsewhere), HasSubstr("mpirun -x VIRGA_RENDEZVOUS"));
}

TEST(Launch, NamesTheBadValue) {
  const std::vector<std::pair<std::string, std::string>> bad{{"RANK", "8"},
                                                             {"RANK", "-1"},
                                                             {"RANK", "x"},
                                                             {"RANK", "1.5"},
                                                             {"RANK", " 1"},
                                                             {"WORLD_SIZE", "0"},
                                                             {"WORLD_SIZE", "99999999999999999999"},
                                                             {"LOCAL_RANK", "4"},
                                                             {"LOCAL_RANK", "0x1"},
                                                             {"LOCAL_WORLD_SIZE", "9"},
                                                             {"MASTER_PORT", "0"},
                                                             {"MASTER_PORT", "65536"},
                                                             {"MASTER_PORT", "65535"},
                                                             {"MASTER_PORT", "http"}};
  for (const auto& [name, value] : bad) {
    EXPECT_THAT(error_of(with(torchrun(), name, value)), HasSubstr(name + "=" + value));
  }
}

TEST(Launch, FirstSlurmHost) {
  EXPECT_EQ(first_slurm_host("login"), "login");
  EXPECT_EQ(first_slurm_host("a,b"), "a");
  EXPECT_EQ(first_slurm_host("node[03-05,7],login"), "node03");
  EXPECT_EQ(first_slurm_host("node[7,03-05]"), "node7");
  EXPECT_EQ(first_slurm_host("rack[1-2]n[01-04].example"), "rack1n01.example");
  for (const char* bad : {"", ",a", "node[", "node[]", "node[a-b]", "node]1", "node[-3]", "a b"}) {
    EXPECT_THAT(refusal_of([&] { first_slurm_host(bad); }), HasSubstr(std::string("'") + bad + "'"));
  }
}

TEST(Launch, SlurmTasksOnNode) {
  EXPECT_EQ(slurm_tasks_on_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 0), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 2), 2);
  EXPECT_EQ(slurm_tasks_on_node("2(x3),1", 3), 1);
  EXPECT_THAT(refusal_of([] { slurm_tasks_on_node("2(x3),1", 4); }), HasSubstr("node number 4"));
  for (const char* bad :
       {"", "x", "2(x", "2(x)", "2(x3", "(x3)", "0", "2,,1", "2(x3)1", "2(x0)", "-1", "2(x99999999999)"}) {
    EXPECT_THAT(refusal_of([&] { slurm_tasks_on_node(bad, 5); }), HasSubstr(std::string("'") + bad + "'"));
  }
}

}  // namespace
}  // namespace virga::cluster
