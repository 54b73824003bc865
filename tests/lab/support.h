#pragma once

#include <cerrno>
#include <chrono>
#include <dirent.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "virga/lab/crew.h"

namespace virga::lab {

// Tests that make namespaces.
class RootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: run the tests with sudo";
  }
};

// "key=value" lines.
inline std::map<std::string, std::string> parse_facts(const std::string& text) {
  std::map<std::string, std::string> facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t mark = line.find('=');
    if (mark != std::string::npos) facts[line.substr(0, mark)] = line.substr(mark + 1);
  }
  return facts;
}

// What can be read of it. A process may end between the opening and the reading of its file in /proc; reading
// throws then, save by this operator.
inline std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline std::set<std::string> entries(const std::string& path) {
  std::set<std::string> names;
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = ::readdir(folder)) names.insert(entry->d_name);
  ::closedir(folder);
  return names;
}

// Living processes with this word in their command line.
inline int processes_with(const std::string& word) {
  int count = 0;
  for (const std::string& entry : entries("/proc")) {
    if (entry.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_file("/proc/" + entry + "/cmdline").find(word) != std::string::npos) ++count;
  }
  return count;
}

// Processes, the init of an emulated host among them, in a network namespace such as
// "net:[4026531840]". A process that has ended but waits for its parent is in none.
inline int processes_in(const std::string& network_namespace) {
  int count = 0;
  for (const std::string& entry : entries("/proc")) {
    char link[64] = {};
    if (::readlink(("/proc/" + entry + "/ns/net").c_str(), link, sizeof link - 1) < 0) continue;
    if (network_namespace == link) ++count;
  }
  return count;
}

// Looks again and again, for ten seconds at most, whether `condition` holds.
template <class Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

inline bool has_children() { return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

inline CrewOptions captured() {
  CrewOptions options;
  options.output = Output::kCapture;
  options.timeout_seconds = 30;
  return options;
}

// A word that no other process on this machine has in its command line.
inline std::string unique_word() {
  static int number = 0;
  return "virga-test-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

}  // namespace virga::lab
