// Slurm's two list notations; see launch.h.

#include <charconv>

#include "virga/base/error.h"
#include "virga/cluster/launch.h"

namespace virga::cluster {
namespace {

constexpr int kMaxTasks = 1 << 24;

[[noreturn]] void bad_node_list(const std::string& list) {
  fail(ErrorCode::kInvalidArgument, "Slurm's node list is '{}': expected names such as 'node[03-05,7],login'", list);
}

[[noreturn]] void bad_tasks(const std::string& list) {
  fail(ErrorCode::kInvalidArgument, "Slurm's tasks per node are '{}': expected counts such as '2(x3),1'", list);
}

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// One element of the list of tasks, "2" or "2(x3)".
struct TaskRun {
  int tasks = 0;
  int nodes = 1;
};

int positive_number(std::string_view text, const std::string& list) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < 1 || value > kMaxTasks) bad_tasks(list);
  return value;
}

TaskRun parse_task_run(std::string_view text, const std::string& list) {
  TaskRun run;
  const size_t bracket = text.find("(x");
  run.tasks = positive_number(text.substr(0, bracket), list);
  if (bracket == std::string_view::npos) return run;
  if (text.back() != ')') bad_tasks(list);
  run.nodes = positive_number(text.substr(bracket + 2, text.size() - bracket - 3), list);
  return run;
}

}  // namespace

std::string first_slurm_host(const std::string& list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const size_t close = list.find(']', at);
    if (close == std::string::npos) bad_node_list(list);
    const std::string ranges = list.substr(at + 1, close - at - 1);
    const std::string first = ranges.substr(0, ranges.find_first_of("-,"));
    if (!is_digits(first)) bad_node_list(list);
    host += first;
    at = close;
  }
  if (host.empty() || host.find_first_of("] ()") != std::string::npos) bad_node_list(list);
  return host;
}

int slurm_tasks_on_node(const std::string& list, int node) {
  int first = 0;
  std::string_view rest = list;
  while (true) {
    const size_t comma = rest.find(',');
    const TaskRun run = parse_task_run(rest.substr(0, comma), list);
    if (node < first + run.nodes) return run.tasks;
    first += run.nodes;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  fail(ErrorCode::kInvalidArgument, "Slurm's tasks per node '{}' describe {} nodes, this is node number {}", list,
       first, node);
}

}  // namespace virga::cluster
