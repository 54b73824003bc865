#include <filesystem>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "virga/lab/crew.h"

#include "lab/support.h"

// The `virga` command itself, as a user runs it.
namespace virga::lab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LabCommand : public RootTest {};

Arguments words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

void start(Crew& crew, const std::string& program, const std::string& line) {
  SpawnOptions spawn_options;
  spawn_options.argv = words(program + " " + line);
  crew.add(std::move(spawn_options));
}

// Runs `virga LINE` to its end.
RankExit virga(const std::string& line) {
  Crew crew(captured());
  start(crew, VIRGA_COMMAND, line);
  return crew.wait().ranks[0];
}

std::string rank_program(const std::string& arguments) { return std::string(" -- ") + LAB_RANK + " " + arguments; }

int count(const std::string& text, const std::string& part) {
  int result = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++result;
  return result;
}

struct TemporaryFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / unique_word();
  TemporaryFolder() { std::filesystem::create_directory(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

TEST(Command, WrongUsageIsStatus2) {
  for (const char* line :
       {"", "no-such-subcommand", "run", "run --ranks 2", "run --ranks two -- true", "lab --hosts 2",
        "lab --no-such-flag -- true", "run -n 1 --no-such-flag true", "doctor -- true", "doctor true"}) {
    EXPECT_EQ(virga(line).status, 2) << line;
  }
}

// The command begins behind "--" or at the first word that is no flag; a later "--" is its own.
TEST(Command, NeedsNoMarkBeforeTheCommand) {
  for (const char* line : {"run -n 1 echo one --two -- three", "run -n 1 -- echo one --two -- three"}) {
    EXPECT_EQ(virga(line).output, "one --two -- three\n") << line;
  }
}

TEST(Command, ErrorsAreStatus1AndSayWhoSpeaks) {
  const RankExit exit = virga("run --ranks 0 -- true");
  EXPECT_EQ(exit.status, 1);
  EXPECT_THAT(exit.output, HasSubstr("virga: a local run has 1 to 1024 ranks, not 0"));
  EXPECT_THAT(virga("run --ranks 1 -- no-such-program").output, HasSubstr("virga: can't run 'no-such-program'"));
}

TEST(Command, HelpIsNoError) {
  for (const char* line : {"--help", "lab --help", "run --help"}) EXPECT_EQ(virga(line).status, 0);
}

TEST(Command, DoctorNamesEveryItem) {
  const std::string output = virga("doctor").output;
  for (const char* item : {"cpu", "ucx", "torch", "fashion-mnist", "lab namespaces", "lab links"}) {
    EXPECT_THAT(output, HasSubstr(item));
  }
  EXPECT_THAT(output, AllOf(HasSubstr("posix"), HasSubstr("tcp")));
}

TEST(RunCommand, RanksFindTheirPlaceInTheEnvironment) {
  const RankExit exit = virga("run --ranks 3" + rank_program("facts"));
  ASSERT_EQ(exit.status, 0) << exit.output;
  EXPECT_EQ(count(exit.output, "WORLD_SIZE=3\n"), 6);  // LOCAL_WORLD_SIZE, too
  EXPECT_EQ(count(exit.output, "GROUP_RANK=0\n"), 3);
  EXPECT_EQ(count(exit.output, "MASTER_ADDR=127.0.0.1\n"), 3);
  // Lines of rank 0 as they are, those of the others with their rank in front.
  EXPECT_THAT("\n" + exit.output, HasSubstr("\nRANK=0\n"));
  for (const char* line : {"[1] RANK=1\n", "[2] RANK=2\n", "[1] LOCAL_RANK=1\n"}) {
    EXPECT_THAT(exit.output, HasSubstr(line));
  }
}

TEST(RunCommand, RanksMeetAtTheMasterAddress) {
  EXPECT_THAT(virga("run --ranks 3" + rank_program("gather 1000")).output, HasSubstr("bytes 2000"));
}

TEST(RunCommand, EndsWithTheStatusOfTheRankThatFailedFirst) {
  EXPECT_EQ(virga("run --ranks 2" + rank_program("exit 9")).status, 9);
}

TEST(RunCommand, TimeoutIsStatus124) {
  const std::string word = unique_word();
  EXPECT_EQ(virga("run --ranks 2 --timeout 0.3" + rank_program("hold 0 " + word)).status, 124);
  EXPECT_EQ(processes_with(word), 0);
}

// Starts `virga LINE`, waits until ranks 0 and 1 hold, sends the signal and returns the status.
int status_after_signal(const std::string& line, int signal_number, std::string* output = nullptr) {
  Crew crew(captured());
  start(crew, VIRGA_COMMAND, line);
  EXPECT_TRUE(crew.wait_for_output(0, "[1] ready\n", 10));
  EXPECT_TRUE(crew.wait_for_output(0, "\nready\n", 10));
  crew.signal(0, signal_number);
  const RankExit exit = crew.wait().ranks[0];
  if (output != nullptr) *output = exit.output;
  return exit.status;
}

TEST(RunCommand, SignalsReachTheRanks) {
  for (int signal_number : {SIGINT, SIGTERM}) {
    const std::string word = unique_word();
    const std::string line = "run --ranks 2" + rank_program("hold 0 " + word);
    EXPECT_EQ(status_after_signal(line, signal_number), 128 + signal_number);
    EXPECT_EQ(processes_with(word), 0);
  }
}

TEST(RunCommand, KilledItTakesItsRanksAlong) {
  const std::string word = unique_word();
  const std::string line = "run --ranks 2" + rank_program("hold 0 " + word);
  EXPECT_EQ(status_after_signal(line, SIGKILL), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return processes_with(word) == 0; }));
}

TEST_F(LabCommand, WritesWhatEveryHostAndRankDid) {
  const TemporaryFolder folder;
  const std::string file = folder.path / "lab.json";
  const RankExit exit =
      virga("lab --hosts 2 --ranks-per-host 2 --rate 500mbit --json " + file + rank_program("exit 5"));
  EXPECT_EQ(exit.status, 5);
  const auto json = nlohmann::json::parse(read_file(file));
  EXPECT_EQ(json["rate_bits_per_second"], 500'000'000);
  EXPECT_EQ(json["command"], nlohmann::json({LAB_RANK, "exit", "5"}));
  EXPECT_EQ(json["status"], 5);
  EXPECT_GT(json["seconds"], 0.0);
  ASSERT_EQ(json["hosts"].size(), 2U);
  EXPECT_EQ(json["hosts"][1]["name"], "host1");
  EXPECT_EQ(json["hosts"][1]["address"], "10.91.0.2");
  EXPECT_EQ(json["hosts"][1]["bytes_sent"], 0);
  EXPECT_EQ(json["hosts"][1]["bytes_received"], 0);
  ASSERT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["ranks"][3]["host"], 1);
  EXPECT_EQ(json["ranks"][3]["exit_status"], 5);
  EXPECT_TRUE(json["ranks"][3]["signal"].is_null());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

TEST_F(LabCommand, CountsTheBytesOfEachHost) {
  const TemporaryFolder folder;
  const std::string file = folder.path / "lab.json";
  ASSERT_EQ(virga("lab --hosts 2 --json " + file + rank_program("gather 1000000")).status, 0);
  const auto json = nlohmann::json::parse(read_file(file));
  EXPECT_GE(json["hosts"][1]["bytes_sent"], 1'000'000);
  EXPECT_LE(json["hosts"][1]["bytes_sent"], 1'060'000);
  EXPECT_EQ(json["hosts"][0]["bytes_received"], json["hosts"][1]["bytes_sent"]);
}

TEST_F(LabCommand, SaysBeforeTheRunThatItsReportCannotBeWritten) {
  const RankExit exit = virga("lab --json /no/such/folder/lab.json" + rank_program("facts"));
  EXPECT_EQ(exit.status, 1);
  EXPECT_THAT(exit.output, HasSubstr("/no/such/folder/lab.json"));
  EXPECT_EQ(count(exit.output, "RANK="), 0);
}

void expect_nothing_left(const std::string& output, const std::string& word) {
  const std::string network = parse_facts(output)["net_namespace"];
  ASSERT_THAT(network, HasSubstr("net:["));
  EXPECT_TRUE(eventually([&] { return processes_with(word) == 0; }));
  EXPECT_TRUE(eventually([&] { return processes_in(network) == 0; }));
}

TEST_F(LabCommand, SignalsReachTheRanks) {
  for (int signal_number : {SIGINT, SIGTERM}) {
    const std::string word = unique_word();
    std::string output;
    const std::string line = "lab --hosts 2" + rank_program("hold 0 " + word);
    EXPECT_EQ(status_after_signal(line, signal_number, &output), 128 + signal_number);
    expect_nothing_left(output, word);
  }
}

TEST_F(LabCommand, KilledItLeavesNoProcessAndNoNamespace) {
  const std::string word = unique_word();
  std::string output;
  const std::string line = "lab --hosts 2 --ranks-per-host 2" + rank_program("family 0 " + word);
  EXPECT_EQ(status_after_signal(line, SIGKILL, &output), 128 + SIGKILL);
  expect_nothing_left(output, word);
}

TEST_F(LabCommand, SaysWhatToDoWithoutRoot) {
  // A copy, because the build folder may be closed to others.
  const TemporaryFolder folder;
  const std::string copy = folder.path / "virga";
  std::filesystem::copy_file(VIRGA_COMMAND, copy);
  Crew crew(captured());
  start(crew, "setpriv", "--reuid=65534 --clear-groups " + copy + " lab --hosts 2 -- true");
  const RankExit exit = crew.wait().ranks[0];
  EXPECT_EQ(exit.status, 1);
  EXPECT_THAT(exit.output, AllOf(HasSubstr("virga: a lab needs root"), HasSubstr("sudo")));
}

}  // namespace
}  // namespace virga::lab
