// `virga bench collective` and `virga probe` on real processes: rows and figures, and what wrong use gets.
#include "virga/cluster/cluster_file.h"

#include "end_to_end/support.h"

namespace virga::end_to_end {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

lab::CrewResult bench(int ranks, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {VIRGA_COMMAND, "bench", "collective", "--repetitions", "2"});
  return lab::run_local(ranks, arguments, captured(60));
}

TEST(Bench, EveryOperationIsRightAndHasARowForEverySize) {
  TemporaryFolder folder;
  for (const char* op : {"allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather", "scatter",
                         "alltoall", "neighbor_exchange"}) {
    const std::string path = folder / op;
    const lab::CrewResult result = bench(3, {"--op", op, "--bytes", "1K:4K", "--json", path});
    ASSERT_EQ(result.status, 0) << result.ranks[0].output;
    std::ifstream file(path);
    const nlohmann::json rows = nlohmann::json::parse(file);
    ASSERT_EQ(rows.size(), 3u);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i]["op"], op);
      EXPECT_EQ(rows[i]["bytes"], 1024 << i);
      EXPECT_EQ(rows[i]["ranks"], 3);
      EXPECT_EQ(rows[i]["hosts"], 1);
      EXPECT_EQ(rows[i]["correct"], true);
      for (const char* key : {"seconds_median", "bound_seconds", "bound_fraction", "bus_bytes_per_second"}) {
        EXPECT_GT(rows[i][key], 0) << key;
      }
      EXPECT_FALSE(rows[i]["algorithm"].get<std::string>().empty());
    }
  }
}

std::vector<nlohmann::json> rows_of(int ranks, std::vector<std::string> arguments) {
  TemporaryFolder folder;
  arguments.insert(arguments.end(), {"--json", folder / "rows"});
  const lab::CrewResult result = bench(ranks, arguments);
  EXPECT_EQ(result.status, 0) << result.ranks[0].output;
  std::ifstream file(folder / "rows");
  return nlohmann::json::parse(file);
}

TEST(Bench, TakesAllAlgorithmsInTurnAndTellsWhichIsChosen) {
  const std::vector<nlohmann::json> rows = rows_of(2, {"--bytes", "4,1K", "--algorithm", "all"});
  std::set<std::string> names;
  std::map<size_t, int> chosen;
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["correct"], true);
    names.insert(row["algorithm"]);
    chosen[row["bytes"]] += row["chosen"].get<bool>();
  }
  EXPECT_THAT(names, IsSupersetOf({"ring", "recursive_doubling"}));
  EXPECT_THAT(chosen, UnorderedElementsAre(Pair(4, 1), Pair(1024, 1)));
}

TEST(Bench, ABarrierHasNoBytes) {
  const std::vector<nlohmann::json> rows = rows_of(3, {"--op", "barrier", "--bytes", "1K"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["bytes"], 0);
  EXPECT_GT(rows[0]["seconds_median"], 0);
}

// Results of a sparse allreduce are right if with the residuals nothing is missing.
TEST(Bench, SparseAllreducesLoseNothing) {
  const auto flags = {"--op", "sparse_allreduce", "--bytes", "64K", "--algorithm", "all", "--density", "0.1"};
  const std::vector<nlohmann::json> rows = rows_of(3, {flags.begin(), flags.end()});
  EXPECT_GE(rows.size(), 7u);
  for (const nlohmann::json& row : rows) EXPECT_EQ(row["correct"], true) << row;
}

// What the probe finds, the bench predicts with.
TEST(Probe, WritesAClusterFileThatTheBenchTakes) {
  TemporaryFolder folder;
  const std::string file = folder / "cluster.toml";
  const lab::CrewResult probe = lab::run_local(2, {VIRGA_COMMAND, "probe", "--write", file}, captured(60));
  ASSERT_EQ(probe.status, 0) << probe.ranks[0].output;
  const cluster::ClusterFile found = cluster::read_cluster_file(file);
  EXPECT_EQ(found.ranks_per_host, std::vector<int>{2});
  EXPECT_EQ(found.figures.between_hosts, cluster::kOrdinaryFigures.between_hosts);  // there is no such link
  EXPECT_GT(found.figures.inside_host.latency_seconds, 0);
  EXPECT_GT(found.figures.inside_host.bytes_per_second, 1e7);
  EXPECT_GT(found.figures.memory_bytes_per_second, 1e7);
  EXPECT_EQ(bench(2, {"--bytes", "1K", "--cluster", file}).status, 0);
}

TEST(Probe, AFileThatCantBeWrittenIsNamedBeforeItMeasures) {
  const lab::CrewResult probe = lab::run_local(1, {VIRGA_COMMAND, "probe", "--write", "/nonexistent/f"}, captured(60));
  EXPECT_EQ(probe.status, 1);
  EXPECT_THAT(probe.ranks[0].output, HasSubstr("/nonexistent/f"));
}

TEST(Bench, RanksThatDisagreeAreNamedOnEveryRank) {
  const std::string command = std::string("exec ") + VIRGA_COMMAND + " bench collective --bytes 1K ";
  const auto expect_named = [&](const std::string& flags, const char* setting) {
    const lab::CrewResult result = lab::run_local(2, {"/bin/sh", "-c", command + flags}, captured(60));
    for (const lab::RankExit& rank : result.ranks) {
      EXPECT_EQ(rank.status, 1) << rank.output;
      EXPECT_THAT(rank.output, HasSubstr(setting));
    }
  };
  expect_named("--repetitions $((RANK + 2))", "repetitions=3");
  expect_named("--slice-bytes $((RANK * 64 + 64))", "slice bytes=128");
  TemporaryFolder folder;
  for (int rank = 0; rank < 2; ++rank) {
    std::ofstream(folder / std::to_string(rank))
        << "ranks_per_host = [2]\nmemory_bytes_per_second = 8e9\n"
        << "[between_hosts]\nlatency_seconds = 0\nbytes_per_second = 1e8\n"
        << "[inside_host]\nlatency_seconds = 0\nbytes_per_second = " << rank + 1 << "e9\n";
  }
  expect_named("--cluster " + (folder / "$RANK"), "figures=");
}

TEST(Bench, WrongUseIsNamed) {
  const auto expect_refused = [](const std::vector<std::string>& arguments, const char* message) {
    const lab::CrewResult result = bench(1, arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.ranks[0].output, HasSubstr(message));
  };
  expect_refused({"--op", "alreduce"}, "unknown operation 'alreduce'; known are allreduce");
  expect_refused({"--bytes", "4 apples"}, "is no size");
  expect_refused({"--bytes", "-4"}, "is no size");
  expect_refused({"--bytes", "8K:4K"}, "sizes go from");
  expect_refused({"--op", "sparse_allreduce"}, "sparse_allreduce takes an algorithm by its name");
  expect_refused({"--algorithm", "rign"}, "unknown allreduce 'rign'; known are ring");
  expect_refused({"--cluster", "/nonexistent.toml"}, "/nonexistent.toml");
}

}  // namespace
}  // namespace virga::end_to_end
