#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

#include "virga/lab/file_descriptor.h"

// Linux namespaces without names: they are held by descriptors and processes only, so whatever
// dies, the kernel removes them and every device in them by itself. Needs root (CAP_SYS_ADMIN).
namespace virga::lab {

// A set of namespaces that a child can join; a descriptor that isn't valid means: keep ours.
struct Namespaces {
  FileDescriptor network, ipc, uts, mount, root;  // root: the folder that is / there
  FileDescriptor pid;                             // joined by the act of forking, see ChildrenGoTo

  // Moves the calling process into all but `pid`. Returns nullptr, or what failed (errno says why).
  // Only async-signal-safe calls: it runs between fork and exec.
  const char* enter() const;
};

// While it lives, children of this thread are born in another PID namespace.
class ChildrenGoTo {
 public:
  explicit ChildrenGoTo(int pid_namespace);  // throws kUnavailable if that namespace has ended
  ~ChildrenGoTo();
  ChildrenGoTo(const ChildrenGoTo&) = delete;
  ChildrenGoTo& operator=(const ChildrenGoTo&) = delete;

 private:
  FileDescriptor own_;
};

// A new, empty network namespace. Throws kUnavailable with what to do where we lack the privilege.
Namespaces new_network();

// One emulated machine: network, PID, IPC, UTS and mount namespaces of its own, with its own host
// name, /proc, /sys, /dev/shm and /etc/hosts. Its init does nothing but wait for us to go; with it,
// the kernel ends everything inside.
class Machine {
 public:
  // `hosts_file` is the content of its /etc/hosts. Throws kUnavailable with the step that failed.
  Machine(std::string name, std::string_view hosts_file);
  ~Machine();
  Machine(Machine&&) noexcept;
  Machine& operator=(Machine&&) = delete;

  const std::string& name() const { return name_; }
  const Namespaces& namespaces() const { return namespaces_; }
  pid_t init() const { return init_; }

 private:
  std::string name_;
  FileDescriptor control_;  // our end; when it closes, however that happens, init exits
  pid_t init_ = -1;
  Namespaces namespaces_;
};

}  // namespace virga::lab
