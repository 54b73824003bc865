#include "virga/cluster/cluster_file.h"

#include <bit>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <unistd.h>

#include "virga/base/random.h"

#include "cluster/refusal.h"

namespace virga::cluster {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// Lines are counted by the tests below: whoever changes one changes those.
constexpr const char* kEven = R"(# line 1
hosts = 8
ranks_per_host = 2
memory_bytes_per_second = 8e9

[between_hosts]  # line 6
latency_seconds = 100e-6
bytes_per_second = 118_000_000
message_seconds = 2.5e-6

[inside_host]  # line 11
latency_seconds = 0
bytes_per_second = 4e9
)";

// kEven with its only `old` replaced.
std::string with(const std::string& old, const std::string& text) {
  std::string file = kEven;
  const size_t at = file.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  EXPECT_EQ(file.find(old, at + 1), std::string::npos) << old;
  return file.replace(at, old.size(), text);
}
std::string uneven(const std::string& hosts, const std::string& list) {
  return with("hosts = 8\nranks_per_host = 2\n", hosts + "\nranks_per_host = " + list + "\n");
}

std::string error_of(const std::string& text) {
  SCOPED_TRACE(text.substr(0, 1000));
  return refusal_of([&] { parse_cluster_file(text, "my.toml"); });
}

// A folder of its own, removed in the end.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "virga-cluster-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  std::string write(const std::string& text) const {
    std::ofstream(path_ + "/a.toml", std::ios::binary) << text;
    return path_ + "/a.toml";
  }

 private:
  std::string path_;
};

TEST(ClusterFile, SaysHostsAndFigures) {
  const ClusterFile cluster = parse_cluster_file(kEven, "my.toml");
  EXPECT_EQ(cluster.ranks_per_host, std::vector<int>(8, 2));
  EXPECT_EQ(cluster.figures, (Figures{{100e-6, 118e6, 2.5e-6}, {0, 4e9, 0}, 8e9}));
}

TEST(ClusterFile, HostsMayBeUneven) {
  for (const char* hosts : {"", "hosts = 3"}) {
    EXPECT_EQ(parse_cluster_file(uneven(hosts, "[2, 2, 1]"), "my.toml").ranks_per_host, (std::vector<int>{2, 2, 1}));
  }
}

TEST(ClusterFile, IsReadFromAFile) {
  const Folder folder;
  EXPECT_EQ(read_cluster_file(folder.write(kEven)), parse_cluster_file(kEven, "my.toml"));
  const std::string path = folder.write(with("hosts = 8", "hosts = 0"));
  EXPECT_THAT(refusal_of([&] { read_cluster_file(path); }), StartsWith(path + ":2:9: hosts is 0"));
}

TEST(ClusterFile, ThatCannotBeReadIsNamed) {
  const Folder folder;
  const std::string missing = folder.path() + "/missing.toml";
  EXPECT_EQ(refusal_of([&] { read_cluster_file(missing); }), missing + ": can't be read: No such file or directory");
  EXPECT_EQ(refusal_of([&] { read_cluster_file(folder.path()); }), folder.path() + ": can't be read: Is a directory");
}

TEST(ClusterFile, HasAtMostOneMebibyte) {
  const Folder folder;
  std::string text = kEven;
  text.resize(1 << 20, '\n');
  EXPECT_EQ(read_cluster_file(folder.write(text)), parse_cluster_file(kEven, "my.toml"));
  text += '\n';
  const std::string path = folder.write(text);
  EXPECT_EQ(refusal_of([&] { read_cluster_file(path); }), path + ": a cluster file has at most 1048576 bytes");
  EXPECT_THAT(error_of(text), StartsWith("my.toml: a cluster file has at most"));
}

TEST(ClusterFile, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(error_of(with("= 118_000_000", "118_000_000")), StartsWith("my.toml:8:"));
  EXPECT_THAT(error_of(with("[inside_host]", "[inside_host")), StartsWith("my.toml:11:"));
  EXPECT_THAT(error_of(with("hosts = 8", "hosts = 8\nhosts = 8")), StartsWith("my.toml:3:"));
  EXPECT_THAT(error_of(with("4e9", "\xff")), StartsWith("my.toml:13:"));
  EXPECT_THAT(error_of(with("4e9", std::string(100'000, '['))), StartsWith("my.toml:13:"));
}

TEST(ClusterFile, DottedKeysDoNotExhaustTheStack) {
  std::string dots;
  for (int i = 0; i < 1000; ++i) dots += "a.";
  EXPECT_THAT(error_of(dots + "a = 1\n"), StartsWith("my.toml:1:1: the key a is unknown"));
  EXPECT_EQ(error_of("\n" + dots + ".a = 1\n"), "my.toml:2: a cluster file has at most 1000 dots");
  EXPECT_EQ(error_of(dots + "a = 1\n[b.b]\n"), "my.toml:2: a cluster file has at most 1000 dots");
}

TEST(ClusterFile, UnknownKeysAreNamedWithTheKnown) {
  EXPECT_EQ(error_of(with("hosts = 8", "hosts = 8\nhost = 8")),
            "my.toml:3:1: the key host is unknown; known here: hosts, ranks_per_host, memory_bytes_per_second, "
            "between_hosts, inside_host");
  EXPECT_EQ(error_of(with("message_seconds", "message_second")),
            "my.toml:9:1: the key message_second is unknown; known here: latency_seconds, bytes_per_second, "
            "message_seconds, segment_bytes, burst_bytes");
  EXPECT_THAT(error_of(std::string(kEven) + "[inside_hosts]\n"), StartsWith("my.toml:14:2: the key inside_hosts"));
  EXPECT_THAT(error_of(std::string(kEven) + "\"\\n\\u0007\" = 1\n"), StartsWith("my.toml:14:1: the key ?? is unknown"));
}

TEST(ClusterFile, MissingKeysNameTheLineOfTheirTable) {
  EXPECT_EQ(error_of(""), "my.toml:1:1: the key ranks_per_host is missing");
  EXPECT_EQ(error_of(with("hosts = 8", "")), "my.toml:1:1: the key hosts is missing");
  EXPECT_EQ(error_of(with("ranks_per_host = 2", "")), "my.toml:1:1: the key ranks_per_host is missing");
  EXPECT_EQ(error_of(with("memory_bytes_per_second = 8e9", "")),
            "my.toml:1:1: the key memory_bytes_per_second is missing");
  EXPECT_EQ(error_of(with("latency_seconds = 100e-6", "")), "my.toml:6:1: the key latency_seconds is missing");
  EXPECT_EQ(error_of(with("latency_seconds = 0", "")), "my.toml:11:1: the key latency_seconds is missing");
  EXPECT_EQ(error_of(with("bytes_per_second = 4e9", "")), "my.toml:11:1: the key bytes_per_second is missing");
}

TEST(ClusterFile, MissingTablesNameTheFirstLine) {
  const std::string text = kEven;
  EXPECT_EQ(error_of(text.substr(0, text.find("[inside_host]"))), "my.toml:1:1: the key inside_host is missing");
  EXPECT_EQ(error_of(text.substr(0, text.find("[between_hosts]"))), "my.toml:1:1: the key between_hosts is missing");
}

TEST(ClusterFile, TypesAreHeldTo) {
  for (const char* bad : {"'8'", "8.0", "true", "[8]", "{a = 8}", "2020-01-01"}) {
    EXPECT_EQ(error_of(with("hosts = 8", std::string("hosts = ") + bad)), "my.toml:2:9: hosts must be an integer");
  }
  for (const char* bad : {"'2'", "2.0", "false", "{a = 2}"}) {
    EXPECT_EQ(error_of(with("_host = 2", std::string("_host = ") + bad)),
              "my.toml:3:18: ranks_per_host must be an integer");
  }
  EXPECT_EQ(error_of(uneven("", "[2,\n2.5]")), "my.toml:4:1: ranks_per_host must be an integer");
  for (const char* bad : {"'8e9'", "true", "[8e9]"}) {
    EXPECT_EQ(error_of(with("8e9", bad)), "my.toml:4:27: memory_bytes_per_second must be a number");
    EXPECT_EQ(error_of(with("100e-6", bad)), "my.toml:7:19: latency_seconds must be a number");
    EXPECT_EQ(error_of(with("118_000_000", bad)), "my.toml:8:20: bytes_per_second must be a number");
    EXPECT_EQ(error_of(with("2.5e-6", bad)), "my.toml:9:19: message_seconds must be a number");
  }
  EXPECT_EQ(error_of(with("[between_hosts]", "[[between_hosts]]")), "my.toml:6:1: between_hosts must be a table");
  EXPECT_EQ(error_of("ranks_per_host = [1]\nmemory_bytes_per_second = 1\nbetween_hosts = 1\n"),
            "my.toml:3:17: between_hosts must be a table");
}

TEST(ClusterFile, RatesAreAboveZeroAndFinite) {
  for (const char* bad : {"0", "0.0", "-0.0", "-1", "-8e9"}) {
    EXPECT_THAT(error_of(with("8e9", bad)),
                AllOf(StartsWith("my.toml:4:27: memory_bytes_per_second is "), EndsWith("must be above 0")));
    EXPECT_THAT(error_of(with("118_000_000", bad)), StartsWith("my.toml:8:20: bytes_per_second is "));
    EXPECT_THAT(error_of(with("4e9", bad)), StartsWith("my.toml:13:20: bytes_per_second is "));
  }
  for (const char* bad : {"nan", "-nan", "inf", "+inf", "-inf"}) {
    EXPECT_THAT(error_of(with("8e9", bad)), AllOf(StartsWith("my.toml:4:27: "), EndsWith("must be finite")));
    EXPECT_THAT(error_of(with("4e9", bad)), AllOf(StartsWith("my.toml:13:20: "), EndsWith("must be finite")));
  }
  EXPECT_THAT(error_of(with("4e9", "1e400")), StartsWith("my.toml:13:"));
}

TEST(ClusterFile, SecondsAreFiniteAndNotBelowZero) {
  for (const char* bad : {"-1", "-1e-9", "nan", "inf", "-inf"}) {
    EXPECT_THAT(error_of(with("100e-6", bad)), StartsWith("my.toml:7:19: latency_seconds is "));
    EXPECT_THAT(error_of(with("2.5e-6", bad)), StartsWith("my.toml:9:19: message_seconds is "));
    EXPECT_THAT(error_of(with("latency_seconds = 0", std::string("latency_seconds = ") + bad)),
                StartsWith("my.toml:12:19: latency_seconds is "));
  }
}

TEST(ClusterFile, HostsAndRanksAreAtLeastOne) {
  for (const char* bad : {"0", "-1", "-9223372036854775808"}) {
    EXPECT_EQ(error_of(with("hosts = 8", std::string("hosts = ") + bad)),
              std::string("my.toml:2:9: hosts is ") + bad + ", must be 1 to 1000000");
    EXPECT_EQ(error_of(with("_host = 2", std::string("_host = ") + bad)),
              std::string("my.toml:3:18: ranks_per_host is ") + bad + ", must be 1 to 1000000");
    EXPECT_EQ(error_of(uneven("", std::string("[2,\n  ") + bad + "]")),
              std::string("my.toml:4:3: ranks_per_host is ") + bad + ", must be 1 to 1000000");
  }
  EXPECT_EQ(error_of(uneven("", "[]")), "my.toml:3:18: ranks_per_host lists no host");
}

TEST(ClusterFile, RanksAreAMillionAtMost) {
  const auto hosts_of = [](const std::string& text) { return parse_cluster_file(text, "my.toml").ranks_per_host; };
  EXPECT_EQ(hosts_of(with("hosts = 8", "hosts = 500000")).size(), 500'000u);
  EXPECT_EQ(hosts_of(uneven("", "[999_999, 1]")).size(), 2u);
  EXPECT_EQ(error_of(with("hosts = 8", "hosts = 500001")), "my.toml:3:18: these are more than 1000000 ranks in all");
  EXPECT_EQ(error_of(uneven("", "[999_999, 1,\n1]")), "my.toml:4:1: these are more than 1000000 ranks in all");
  EXPECT_THAT(error_of(with("hosts = 8", "hosts = 1000001")), StartsWith("my.toml:2:9: hosts is 1000001"));
  EXPECT_THAT(error_of(with("_host = 2", "_host = 9223372036854775807")), StartsWith("my.toml:3:18: ranks_per_host"));
  EXPECT_THAT(error_of(with("hosts = 8", "hosts = 99999999999999999999")), StartsWith("my.toml:2:"));
}

TEST(ClusterFile, HostsMustAgreeWithTheList) {
  for (const char* bad : {"2", "4"}) {
    EXPECT_EQ(error_of(uneven(std::string("hosts = ") + bad, "[2, 2, 1]")),
              "my.toml:2:9: hosts does not agree with ranks_per_host, which lists 3");
  }
  EXPECT_EQ(error_of(uneven("hosts = '3'", "[2, 2, 1]")), "my.toml:2:9: hosts must be an integer");
}

ClusterFile round_trip(const ClusterFile& cluster) {
  return parse_cluster_file(write_cluster_file(cluster), "written.toml");
}

TEST(ClusterFile, IsWrittenForPeople) {
  EXPECT_EQ(
      write_cluster_file({{2, 2}, kOrdinaryFigures}),
      "hosts = 2\nranks_per_host = 2\nmemory_bytes_per_second = 16000000000\n\n"
      "[between_hosts]\nlatency_seconds = 0.0001\nbytes_per_second = 118000000\nmessage_seconds = 0\n"
      "segment_bytes = 0\nburst_bytes = 0\n\n[inside_host]\nlatency_seconds = 5e-06\nbytes_per_second = 8500000000\n"
      "message_seconds = 1.7e-06\nsegment_bytes = 61440\nburst_bytes = 0\n");
  EXPECT_THAT(write_cluster_file({{2, 1, 2}, kOrdinaryFigures}), StartsWith("ranks_per_host = [2, 1, 2]\nmemory"));
}

TEST(ClusterFile, ReadsWhatItWroteToTheBit) {
  using Limits = std::numeric_limits<double>;
  for (const std::vector<int>& hosts : {std::vector<int>{1}, {3, 3, 3}, {2, 2, 1}, {1, 2}}) {
    EXPECT_EQ(round_trip({hosts, kOrdinaryFigures}), (ClusterFile{hosts, kOrdinaryFigures}));
  }
  // Around 2^53 and 2^63, where integers end, and at both ends of the range.
  std::vector<double> numbers{Limits::denorm_min(), Limits::min(), Limits::max(), 0x1p53 + 2, 1e15, 1e16, 0x1p63, 1e22};
  Random random(1);
  while (numbers.size() < 3000) {
    const auto number = std::bit_cast<double>(random() >> 1);  // the sign bit is clear
    if (std::isfinite(number) && number > 0) numbers.push_back(number);
  }
  for (size_t i = 0; i + 8 < numbers.size(); ++i) {
    const double* n = &numbers[i];
    const Figures figures{{n[0], n[1], n[2], n[3]}, {n[4], n[5], n[6], n[7]}, n[8]};
    ASSERT_EQ(round_trip({{1}, figures}).figures, figures) << write_cluster_file({{1}, figures});
  }
}

TEST(ClusterFile, WritesNothingThatCannotBeRead) {
  const auto error = [](const ClusterFile& cluster) { return refusal_of([&] { write_cluster_file(cluster); }); };
  EXPECT_THAT(error({{}, kOrdinaryFigures}), HasSubstr("lists no host"));
  EXPECT_THAT(error({{2, 0}, kOrdinaryFigures}), HasSubstr("ranks_per_host is 0"));
  Figures figures = kOrdinaryFigures;
  figures.inside_host.bytes_per_second = std::numeric_limits<double>::infinity();
  EXPECT_THAT(error({{2, 2}, figures}), HasSubstr("bytes_per_second is inf, must be finite"));
}

}  // namespace
}  // namespace virga::cluster
