#include "virga/lab/namespace.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <utility>

#include "virga/base/error.h"
#include "virga/lab/process.h"

namespace virga::lab {
namespace {

[[noreturn]] void fail_errno(std::string_view step) {
  const int error = errno;
  const char* advice = error == EPERM ? " (run it as root; in a container, as a privileged one)" : "";
  fail(ErrorCode::kUnavailable, "can't {}: {}{}", step, std::strerror(error), advice);
}

FileDescriptor open_link(const std::string& path, int flags = 0) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!file.valid()) fail_errno("open " + path);
  return file;
}

FileDescriptor own_namespace(const char* kind) { return open_link(fmt::format("/proc/thread-self/ns/{}", kind)); }

Namespaces namespaces_of(pid_t pid) {
  const auto link = [pid](const char* kind) { return open_link(fmt::format("/proc/{}/ns/{}", pid, kind)); };
  Namespaces result;
  result.network = link("net");
  result.ipc = link("ipc");
  result.uts = link("uts");
  result.mount = link("mnt");
  result.pid = link("pid");
  result.root = open_link(fmt::format("/proc/{}/root", pid), O_DIRECTORY);
  return result;
}

// ---- what the init of a machine does, in the child ----

void mount_or_fail(const char* source, const char* target, const char* type, unsigned long flags) {
  if (::mount(source, target, type, flags, nullptr) != 0) {
    fail_errno(fmt::format("mount {} for an emulated host", target));
  }
}

bool make_private(const char* target) { return ::mount(nullptr, target, nullptr, MS_REC | MS_PRIVATE, nullptr) == 0; }

// Mounts over `target` so that nobody outside sees it. / can't be made private in a chroot that is
// no mount point; there, the target or its parent has to be one.
void mount_over(bool root_private, const char* type, const char* parent, const char* target) {
  if (!root_private && !make_private(target) && !make_private(parent)) {
    fail_errno(fmt::format("hide {} of an emulated host; in a chroot, mount it first", target));
  }
  mount_or_fail(type, target, type, MS_NOSUID | MS_NODEV);
}

// Host names resolve as in a real cluster. The file lives on the machine's own tmpfs and has no
// name there.
void install_hosts_file(std::string_view content) {
  constexpr const char* kPath = "/dev/shm/.virga-hosts";
  const FileDescriptor file(::open(kPath, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  const ssize_t written = ::write(file.get(), content.data(), content.size());
  if (written != static_cast<ssize_t>(content.size())) fail_errno("write the hosts file");
  mount_or_fail(kPath, "/etc/hosts", nullptr, MS_BIND);
  ::unlink(kPath);
}

void furnish(const std::string& name, std::string_view hosts_file) {
  if (::unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNS) != 0) {
    fail_errno("make the namespaces of an emulated host");
  }
  if (::sethostname(name.data(), name.size()) != 0) fail_errno("set a host name");
  const bool root_private = make_private("/");
  mount_over(root_private, "proc", "/", "/proc");
  mount_over(root_private, "sysfs", "/", "/sys");
  mount_over(root_private, "tmpfs", "/dev", "/dev/shm");
  if (root_private && ::access("/etc/hosts", F_OK) == 0) install_hosts_file(hosts_file);
}

void let_go_of_all_but(int fd) {
  const int null = ::open("/dev/null", O_RDWR);
  for (int target : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, target);
  if (fd > 3) ::close_range(3, static_cast<unsigned>(fd) - 1, 0);
  ::close_range(static_cast<unsigned>(fd) + 1, ~0U, 0);
}

// Says "" or an error to the other end, and then lives until that end is closed. The descriptors of
// other machines were inherited and would keep them alive, so they go first.
[[noreturn]] void serve_as_init(int control, const std::string& name, std::string_view hosts_file) {
  ::setsid();
  let_go_of_all_but(control);
  ::signal(SIGCHLD, SIG_IGN);  // orphans of the ranks vanish without a zombie
  ::prctl(PR_SET_NAME, ("virga-" + name).c_str());
  std::string word = "ok";
  try {
    furnish(name, hosts_file);
  } catch (const std::exception& error) {
    word = error.what();
  }
  [[maybe_unused]] const ssize_t written = ::send(control, word.data(), word.size(), MSG_NOSIGNAL);
  char byte;
  while (::recv(control, &byte, 1, 0) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

// ---- and its parent ----

pid_t fork_init(int control, const std::string& name, std::string_view hosts_file) {
  const FileDescriptor own = own_namespace("pid");
  if (::unshare(CLONE_NEWPID) != 0) fail_errno("make a PID namespace");
  const pid_t pid = ::fork();
  if (pid == 0) serve_as_init(control, name, hosts_file);
  const int error = errno;
  if (::setns(own.get(), CLONE_NEWPID) != 0) fail_errno("return to our own PID namespace");
  errno = error;
  if (pid < 0) fail_errno("start the init of an emulated host");
  return pid;
}

std::string receive_word(int control) {
  char word[512];
  ssize_t count;
  do {
    count = ::recv(control, word, sizeof word, 0);
  } while (count < 0 && errno == EINTR);
  return count > 0 ? std::string(word, static_cast<size_t>(count)) : "its init died";
}

}  // namespace

const char* Namespaces::enter() const {
  if (network.valid() && ::setns(network.get(), CLONE_NEWNET) != 0) return "join the network";
  if (ipc.valid() && ::setns(ipc.get(), CLONE_NEWIPC) != 0) return "join the IPC namespace";
  if (uts.valid() && ::setns(uts.get(), CLONE_NEWUTS) != 0) return "join the UTS namespace";
  if (!mount.valid()) return nullptr;
  if (::setns(mount.get(), CLONE_NEWNS) != 0) return "join the mount namespace";
  // setns leads to the root of the whole file system, which in a chroot is not ours.
  if (::fchdir(root.get()) != 0 || ::chroot(".") != 0) return "enter the root folder";
  return nullptr;
}

ChildrenGoTo::ChildrenGoTo(int pid_namespace) : own_(own_namespace("pid")) {
  if (::setns(pid_namespace, CLONE_NEWPID) != 0) fail_errno("join a PID namespace");
}

ChildrenGoTo::~ChildrenGoTo() { ::setns(own_.get(), CLONE_NEWPID); }

Namespaces new_network() {
  const FileDescriptor own = own_namespace("net");
  if (::unshare(CLONE_NEWNET) != 0) fail_errno("make a network namespace");
  Namespaces result;
  const int fd = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  result.network = FileDescriptor(fd);
  if (::setns(own.get(), CLONE_NEWNET) != 0) fail_errno("return to our own network");
  if (fd < 0) fail(ErrorCode::kUnavailable, "can't open a new network namespace: is /proc mounted?");
  return result;
}

Machine::Machine(std::string name, std::string_view hosts_file) : name_(std::move(name)) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail_errno("make a socket");
  control_ = FileDescriptor(ends[0]);
  FileDescriptor theirs(ends[1]);
  init_ = fork_init(theirs.get(), name_, hosts_file);
  theirs.reset();
  try {
    const std::string word = receive_word(control_.get());
    if (word != "ok") fail(ErrorCode::kUnavailable, "{}: {}", name_, word);
    namespaces_ = namespaces_of(init_);
  } catch (...) {
    control_.reset();
    reap(init_);
    throw;
  }
}

Machine::Machine(Machine&& other) noexcept
    : name_(std::move(other.name_)),
      control_(std::move(other.control_)),
      init_(std::exchange(other.init_, -1)),
      namespaces_(std::move(other.namespaces_)) {}

Machine::~Machine() {
  if (init_ < 0) return;
  ::kill(init_, SIGKILL);
  reap(init_);
}

}  // namespace virga::lab
