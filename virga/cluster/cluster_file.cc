#include "virga/cluster/cluster_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fmt/ranges.h>
#include <fstream>
#include <initializer_list>
#include <toml++/toml.h>

#include "virga/base/error.h"
#include "virga/cluster/rank_list.h"

namespace virga::cluster {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDots = 1000;
constexpr int kMaxRanks = 1'000'000;

// Fails for what begins at `place`, which knows the name of the text.
template <class... Args>
[[noreturn]] void fail_at(const toml::source_region& place, fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorCode::kInvalidArgument, "{}:{}:{}: {}", place.path ? *place.path : "", place.begin.line, place.begin.column,
       fmt::format(format, std::forward<Args>(args)...));
}

// Dotted keys nest tables. The library sets that no bound and frees tables by recursion, so a hostile text could
// exhaust the stack. Dots of comments count, too: to tell them from others takes a parser.
void require_few_dots(std::string_view text, std::string_view name) {
  size_t dots = 0, line = 1;
  for (const char c : text) {
    dots += c == '.';
    line += c == '\n';
    require(dots <= kMaxDots, "{}:{}: a cluster file has at most {} dots", name, line, kMaxDots);
  }
}

toml::table parse(std::string_view text, std::string_view name) {
  require(text.size() <= kMaxBytes, "{}: a cluster file has at most {} bytes", name, kMaxBytes);
  require_few_dots(text, name);
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    fail_at(error.source(), "{}", printable(error.description()));
  }
}

void require_known(const toml::table& table, std::initializer_list<std::string_view> keys) {
  for (const auto& [key, value] : table) {
    if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
    fail_at(key.source(), "the key {} is unknown; known here: {}", printable(key.str()), fmt::join(keys, ", "));
  }
}

const toml::node& find(const toml::table& table, std::string_view key) {
  const toml::node* node = table.get(key);
  if (node == nullptr) fail_at(table.source(), "the key {} is missing", key);
  return *node;
}

double number_of(const toml::node& node, std::string_view key) {
  double number = 0;
  if (node.is_integer()) {
    number = static_cast<double>(node.as_integer()->get());
  } else if (node.is_floating_point()) {
    number = node.as_floating_point()->get();
  } else {
    fail_at(node.source(), "{} must be a number", key);
  }
  if (!std::isfinite(number)) fail_at(node.source(), "{} is {}, must be finite", key, number);
  return number;
}

double rate_of(const toml::node& node, std::string_view key) {
  const double rate = number_of(node, key);
  if (rate <= 0) fail_at(node.source(), "{} is {}, must be above 0", key, rate);
  return rate;
}

double at_least_zero(const toml::node& node, std::string_view key) {
  const double number = number_of(node, key);
  if (number < 0) fail_at(node.source(), "{} is {}, must not be below 0", key, number);
  return number;
}

int count_of(const toml::node& node, std::string_view key) {
  if (!node.is_integer()) fail_at(node.source(), "{} must be an integer", key);
  const int64_t count = node.as_integer()->get();
  if (count < 1 || count > kMaxRanks) {
    fail_at(node.source(), "{} is {}, must be 1 to {}", key, count, kMaxRanks);
  }
  return static_cast<int>(count);
}

// ranks_per_host as one number, for so many hosts.
std::vector<int> even_hosts(const toml::table& file) {
  const toml::node& hosts = find(file, "hosts");
  const toml::node& ranks = find(file, "ranks_per_host");
  const int host_count = count_of(hosts, "hosts");
  const int rank_count = count_of(ranks, "ranks_per_host");
  if (host_count > kMaxRanks / rank_count) fail_at(ranks.source(), "these are more than {} ranks in all", kMaxRanks);
  return std::vector<int>(static_cast<size_t>(host_count), rank_count);
}

// ranks_per_host as a list.
std::vector<int> listed_hosts(const toml::table& file, const toml::array& list) {
  if (list.empty()) fail_at(list.source(), "ranks_per_host lists no host");
  std::vector<int> result;
  int left = kMaxRanks;
  for (const toml::node& ranks : list) {
    result.push_back(count_of(ranks, "ranks_per_host"));
    if (result.back() > left) fail_at(ranks.source(), "these are more than {} ranks in all", kMaxRanks);
    left -= result.back();
  }
  const toml::node* hosts = file.get("hosts");
  if (hosts != nullptr && count_of(*hosts, "hosts") != static_cast<int>(result.size())) {
    fail_at(hosts->source(), "hosts does not agree with ranks_per_host, which lists {}", result.size());
  }
  return result;
}

std::vector<int> read_hosts(const toml::table& file) {
  const toml::array* list = find(file, "ranks_per_host").as_array();
  return list == nullptr ? even_hosts(file) : listed_hosts(file, *list);
}

LinkFigures read_link(const toml::table& file, std::string_view name) {
  const toml::node& node = find(file, name);
  if (!node.is_table()) fail_at(node.source(), "{} must be a table", name);
  const toml::table& table = *node.as_table();
  require_known(table, {"latency_seconds", "bytes_per_second", "message_seconds", "segment_bytes", "burst_bytes"});
  LinkFigures link;
  link.latency_seconds = at_least_zero(find(table, "latency_seconds"), "latency_seconds");
  link.bytes_per_second = rate_of(find(table, "bytes_per_second"), "bytes_per_second");
  if (const toml::node* seconds = table.get("message_seconds")) {
    link.message_seconds = at_least_zero(*seconds, "message_seconds");
  }
  if (const toml::node* bytes = table.get("segment_bytes")) {
    link.segment_bytes = at_least_zero(*bytes, "segment_bytes");
  }
  if (const toml::node* bytes = table.get("burst_bytes")) {
    link.burst_bytes = at_least_zero(*bytes, "burst_bytes");
  }
  return link;
}

std::string write_hosts(const std::vector<int>& ranks_per_host) {
  const auto differs = [&](int ranks) { return ranks != ranks_per_host.front(); };
  if (ranks_per_host.empty() || std::any_of(ranks_per_host.begin(), ranks_per_host.end(), differs)) {
    return fmt::format("ranks_per_host = [{}]\n", fmt::join(ranks_per_host, ", "));
  }
  return fmt::format("hosts = {}\nranks_per_host = {}\n", ranks_per_host.size(), ranks_per_host.front());
}

std::string write_link(std::string_view name, const LinkFigures& link) {
  return fmt::format(
      "\n[{}]\nlatency_seconds = {}\nbytes_per_second = {}\nmessage_seconds = {}\nsegment_bytes = {}\n"
      "burst_bytes = {}\n",
      name, link.latency_seconds, link.bytes_per_second, link.message_seconds, link.segment_bytes, link.burst_bytes);
}

}  // namespace

ClusterFile read_cluster_file(const std::string& path) {
  std::string text(kMaxBytes + 1, '\0');  // one byte more than there may be
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  require(!file.bad() && file.is_open(), "{}: can't be read: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  return parse_cluster_file(text, path);
}

ClusterFile parse_cluster_file(std::string_view text, std::string_view name) {
  const toml::table file = parse(text, name);
  require_known(file, {"hosts", "ranks_per_host", "memory_bytes_per_second", "between_hosts", "inside_host"});
  ClusterFile result;
  result.ranks_per_host = read_hosts(file);
  result.figures.memory_bytes_per_second = rate_of(find(file, "memory_bytes_per_second"), "memory_bytes_per_second");
  result.figures.between_hosts = read_link(file, "between_hosts");
  result.figures.inside_host = read_link(file, "inside_host");
  return result;
}

std::string write_cluster_file(const ClusterFile& cluster) {
  const Figures& figures = cluster.figures;
  std::string text = write_hosts(cluster.ranks_per_host) +
                     fmt::format("memory_bytes_per_second = {}\n", figures.memory_bytes_per_second) +
                     write_link("between_hosts", figures.between_hosts) +
                     write_link("inside_host", figures.inside_host);
  parse_cluster_file(text, "the cluster to write");  // what can't be read must not be written
  return text;
}

}  // namespace virga::cluster
