// Whole runs of the real command, by every launcher that names itself in the environment.
#include "end_to_end/support.h"

namespace virga::end_to_end {
namespace {

nlohmann::json run(int ranks, std::vector<std::string> arguments) {
  TemporaryFolder folder;
  const std::string metrics = folder / "run.jsonl";
  arguments.insert(arguments.end(), {"--metrics", metrics});
  const lab::CrewResult result = lab::run_local(ranks, train(arguments), captured(120));
  EXPECT_EQ(result.status, 0) << result.ranks[0].output;
  return summary(metrics);
}

TEST(Training, EveryStrategyLearns) {
  for (const char* strategy : {"allreduce", "fp16", "topk", "hitopk"}) {
    const auto end = run(2, {"--strategy", strategy, "--density", "0.1", "--steps", "150"});
    EXPECT_GT(end["test_accuracy"], 0.5) << strategy;
    EXPECT_EQ(end["steps"], 150);
    EXPECT_EQ(end["parameters"], 61706);
    EXPECT_EQ(end["ranks"], 2);
    EXPECT_EQ(end["hosts"], 1);
  }
}

TEST(Training, TheSameSeedGivesTheSameBits) {
  const std::vector<std::string> arguments = {"--strategy", "hitopk", "--steps", "20", "--seed", "7"};
  const auto first = run(3, arguments), again = run(3, arguments);
  EXPECT_EQ(first["parameters_sha256"], again["parameters_sha256"]);
  EXPECT_NE(first["parameters_sha256"],
            run(3, {"--strategy", "hitopk", "--steps", "20", "--seed", "8"})["parameters_sha256"]);
}

TEST(Training, BucketsDoNotChangeADenseResultOfTwoRanks) {
  // Two summands have one order only, however they are cut.
  const auto one = run(2, {"--strategy", "allreduce", "--steps", "10", "--bucket-bytes", "100000000"});
  const auto many = run(2, {"--strategy", "allreduce", "--steps", "10", "--bucket-bytes", "4096"});
  EXPECT_EQ(one["parameters_sha256"], many["parameters_sha256"]);
}

TEST(Training, AClockEndsItOnAllRanksAtTheSameStep) {
  const auto end = run(3, {"--strategy", "allreduce", "--seconds", "2"});
  EXPECT_GE(end["seconds"], 2.0);
  EXPECT_LT(end["seconds"], 20.0);
}

class Launcher : public ::testing::Test {
 protected:
  static void expect_two_ranks(const Arguments& launcher) {
    TemporaryFolder folder;
    Arguments command = launcher;
    const Arguments program = train({"--strategy", "hitopk", "--steps", "5", "--metrics", folder / "run.jsonl"});
    command.insert(command.end(), program.begin(), program.end());
    lab::Crew crew(captured(120));
    lab::SpawnOptions spawn;
    spawn.argv = command;
    spawn.die_with_parent = true;
    crew.add(std::move(spawn));
    const lab::CrewResult result = crew.wait();
    ASSERT_EQ(result.status, 0) << result.ranks[0].output;
    EXPECT_EQ(summary(folder / "run.jsonl")["ranks"], 2);
  }
};

TEST_F(Launcher, OpenMpi) {
  expect_two_ranks({"/usr/bin/env", "VIRGA_RENDEZVOUS=127.0.0.1:" + std::to_string(20000 + getpid() % 20000), "mpirun",
                    "--allow-run-as-root", "--oversubscribe", "-n", "2"});
}

TEST_F(Launcher, TorchrunWithAStaticRendezvous) {
  // torch 1.13 under Python 3.11 can't leave both streams alone, its defaults crash; so one is redirected, one teed.
  TemporaryFolder logs;
  expect_two_ranks({"/usr/bin/python3", "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", "2",
                    "--redirects", "1", "--tee", "2", "--log_dir", logs / "torchrun", "--master_port",
                    std::to_string(20000 + getpid() % 20000), "--no_python"});
}

// Four hosts of two ranks: shared memory inside, TCP between; the devices count what the transport says.
class Lab : public lab::RootTest {};

TEST_F(Lab, BytesBetweenHostsAreTheFormula) {
  TemporaryFolder folder;
  lab::LabOptions options;
  options.hosts = 3;
  options.ranks_per_host = 2;
  options.crew = captured(120);
  lab::Lab lab(options);
  lab.start(train({"--strategy", "hitopk", "--steps", "10", "--metrics", folder / "run.jsonl"}));
  const lab::Report report = lab.wait();
  ASSERT_EQ(report.result.status, 0) << report.result.ranks[0].output;
  const auto end = summary(folder / "run.jsonl");
  EXPECT_EQ(end["hosts"], 3);
  EXPECT_EQ(end["ranks"], 6);
  const double formula = end["inter_host_bytes_per_step_formula"];
  EXPECT_NEAR(end["inter_host_bytes_per_step"], formula, 0.05 * formula);
}

}  // namespace
}  // namespace virga::end_to_end
