// What bad input gets: a clear error on every rank, within its deadline, nothing half-done.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "end_to_end/support.h"

namespace virga::end_to_end {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

lab::CrewResult run(int ranks, const Arguments& command) { return lab::run_local(ranks, command, captured(60)); }

// The same command with shell arithmetic on RANK, so that ranks can differ.
Arguments by_shell(const std::string& arguments) {
  return {"/bin/sh", "-c", std::string("exec ") + VIRGA_COMMAND + " train --threads 1 --steps 3 " + arguments};
}

void expect_everywhere(const lab::CrewResult& result, const ::testing::Matcher<std::string>& message) {
  for (const lab::RankExit& rank : result.ranks) {
    EXPECT_EQ(rank.status, 1) << rank.output;
    EXPECT_THAT(rank.output, message);
  }
}

TEST(WrongUse, UnknownNamesListTheKnownOnes) {
  expect_everywhere(run(1, train({"--strategy", "hitopkk"})),
                    HasSubstr("unknown strategy 'hitopkk'; known are allreduce, fp16, topk, hitopk"));
  expect_everywhere(run(1, train({"--data", "nosuch"})), AllOf(HasSubstr("nosuch"), HasSubstr("fashion-mnist")));
  expect_everywhere(run(1, by_shell("--model resnet19")), AllOf(HasSubstr("resnet19"), HasSubstr("resnet20")));
}

TEST(WrongUse, DensitiesOutsideZeroToOne) {
  for (const char* density : {"0", "-0.1", "1.01", "nan"}) {
    expect_everywhere(run(1, train({"--density", density})), HasSubstr("density"));
  }
}

TEST(WrongUse, WrongFlagsAreStatusTwo) {
  EXPECT_EQ(run(1, train({"--no-such-flag"})).status, 2);
  EXPECT_EQ(run(1, train({"--steps", "many"})).status, 2);
}

TEST(WrongUse, ATruncatedDatasetIsNamed) {
  TemporaryFolder folder;
  for (const char* name :
       {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::ofstream(folder / name) << "short";
  }
  expect_everywhere(run(1, train({"--data", folder / ""})), HasSubstr("train-images-idx3-ubyte"));
}

TEST(Disagreement, ModelsStrategiesAndOptionsAreNamedOnEveryRank) {
  expect_everywhere(run(3, by_shell("--model $([ $RANK = 1 ] && echo mlp || echo lenet5)")),
                    AllOf(HasSubstr("rank 1"), HasSubstr("mlp"), HasSubstr("lenet5")));
  expect_everywhere(run(3, by_shell("--model lenet5 --strategy $([ $RANK = 2 ] && echo topk || echo hitopk)")),
                    AllOf(HasSubstr("rank 2"), HasSubstr("topk"), HasSubstr("hitopk")));
  expect_everywhere(run(3, by_shell("--model lenet5 --density 0.0$((RANK / 2 + 1))")),
                    AllOf(HasSubstr("rank 2"), HasSubstr("density=0.02"), HasSubstr("density=0.01")));
}

TEST(Disagreement, ARankThatNeverComesIsNamed) {
  const Arguments command = {"/bin/sh", "-c",
                             std::string("[ $RANK = 1 ] && exit 0; VIRGA_RENDEZVOUS_TIMEOUT_SECONDS=7 exec ") +
                                 VIRGA_COMMAND + " train --model lenet5 --threads 1 --steps 3"};
  const lab::CrewResult result = run(3, command);
  for (int rank : {0, 2}) {
    EXPECT_EQ(result.ranks[rank].status, 1);
    EXPECT_THAT(result.ranks[rank].output, HasSubstr("still waiting for ranks {1} of 3 after 5 s"));
    EXPECT_THAT(result.ranks[rank].output, HasSubstr("virga: "));
  }
}

TEST(Rendezvous, APortInUseIsNamed) {
  const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(socket_fd, 1), 0);
  socklen_t length = sizeof address;
  getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Arguments command = {"/bin/sh", "-c",
                             "VIRGA_RENDEZVOUS_TIMEOUT_SECONDS=5 VIRGA_RENDEZVOUS=127.0.0.1:" + port + " exec " +
                                 VIRGA_COMMAND + " train --model lenet5 --threads 1 --steps 3"};
  expect_everywhere(run(2, command), HasSubstr("127.0.0.1:" + port));
  close(socket_fd);
}

TEST(Rendezvous, ALoopbackAddressForSeveralHostsIsRefused) {
  const Arguments command = {"/bin/sh", "-c",
                             std::string("LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 VIRGA_RENDEZVOUS_TIMEOUT_SECONDS=5 exec ") +
                                 VIRGA_COMMAND + " train --model lenet5 --threads 1 --steps 3"};
  const lab::CrewResult result = run(2, command);
  EXPECT_EQ(result.ranks[0].status, 1);
  EXPECT_THAT(result.ranks[0].output, HasSubstr("loopback"));
  EXPECT_EQ(result.ranks[1].status, 1);
}

// A learning rate that blows the parameters up makes every later gradient non-finite.
TEST(NonFinite, ErrorStopsEveryRankBeforeTheUpdate) {
  for (const char* strategy : {"allreduce", "hitopk"}) {
    expect_everywhere(run(2, train({"--strategy", strategy, "--steps", "20", "--learning-rate", "1e38"})),
                      HasSubstr("NaN or Inf"));
  }
}

TEST(NonFinite, SkipStepSkipsOnEveryRankAndGoesOn) {
  TemporaryFolder folder;
  const lab::CrewResult result = run(2, train({"--strategy", "hitopk", "--steps", "20", "--learning-rate", "1e38",
                                               "--non-finite", "skip-step", "--metrics", folder / "run.jsonl"}));
  EXPECT_EQ(result.status, 0) << result.ranks[0].output;
  EXPECT_GT(summary(folder / "run.jsonl")["skipped_steps"], 5);
}

}  // namespace
}  // namespace virga::end_to_end
