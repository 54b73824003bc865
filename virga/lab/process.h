#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "virga/lab/file_descriptor.h"

namespace virga::lab {

struct Namespaces;

using Arguments = std::vector<std::string>;
using Environment = std::vector<std::pair<std::string, std::string>>;

// How a child process is started. No shell is ever involved: argv goes to exec as it is.
struct SpawnOptions {
  Arguments argv;                          // argv[0] is looked for in PATH, and in the folders of system tools
  Environment environment;                 // set on top of our own environment
  int stdin_fd = -1;                       // -1: /dev/null
  int stdout_fd = -1;                      // -1: ours
  int stderr_fd = -1;                      // -1: ours
  const Namespaces* namespaces = nullptr;  // which of them the child joins; nullptr: none
  bool own_group = false;                  // a process group of its own, so that a signal reaches what it starts, too
  bool die_with_parent = false;            // SIGKILL when the thread that started it ends
};

// Starts a child and returns its process id once exec has succeeded. Throws kUnavailable with the
// name of the program and the reason if it can't be started. The caller must reap it.
pid_t spawn(const SpawnOptions& options);

// Runs a tool such as `ip` to its end with `input` on its stdin, and returns what it wrote to
// stdout. Throws kUnavailable with the tool's own words if its exit status is not 0.
std::string run_tool(const Arguments& argv, const Namespaces* namespaces = nullptr, std::string_view input = {});

// The path of a program in PATH, /usr/sbin or /sbin (which users' PATHs often lack); empty if it
// isn't there.
std::string find_tool(std::string_view name);

// Blocks until the child ends; returns the status as waitpid gives it.
int reap(pid_t pid);

// A pipe whose ends are closed by exec: {read end, write end}. Throws kResourceExhausted.
std::pair<FileDescriptor, FileDescriptor> make_pipe();

// SIGINT, SIGTERM and SIGHUP as a readable descriptor instead of a sudden death. Children started
// by spawn() get them as usual. One at a time.
class InterruptSignals {
 public:
  InterruptSignals();
  ~InterruptSignals();
  InterruptSignals(const InterruptSignals&) = delete;
  InterruptSignals& operator=(const InterruptSignals&) = delete;

  int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
};

}  // namespace virga::lab
