#include "virga/lab/process.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "virga/base/error.h"
#include "virga/lab/namespace.h"

namespace virga::lab {
namespace {

// Where system tools stand besides PATH.
constexpr std::string_view kSystemFolders = ":/usr/sbin:/sbin:/usr/bin:/bin";

// They name the rendezvous of a job that we ourselves may be part of; our ranks are another job.
constexpr std::string_view kForeignVariables[] = {"VIRGA_RENDEZVOUS", "TORCHELASTIC_USE_AGENT_STORE"};

// What a child says through the error pipe when it fails before exec.
struct ChildFailure {
  int error;
  char step[32];
};

std::string describe(int error) { return std::strerror(error); }

std::vector<std::string> merged_environment(const Environment& additions) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::strcspn(*entry, "="));
    const bool replaced =
        std::any_of(additions.begin(), additions.end(), [&](const auto& pair) { return pair.first == name; });
    const bool foreign =
        std::find(std::begin(kForeignVariables), std::end(kForeignVariables), name) != std::end(kForeignVariables);
    if (!replaced && !foreign) merged.emplace_back(*entry);
  }
  for (const auto& [name, value] : additions) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string current_folder() {
  char* path = ::getcwd(nullptr, 0);
  if (path == nullptr) fail(ErrorCode::kUnavailable, "no current folder: {}", describe(errno));
  std::string result = path;
  ::free(path);
  return result;
}

// Everything a child needs, made before fork: after it, only async-signal-safe calls are allowed.
struct Prepared {
  std::string path;
  std::vector<std::string> argv_storage, environment_storage;
  std::vector<char*> argv, environment;
  std::string folder;
  pid_t parent;
  int error_fd;
};

[[noreturn]] void give_up(int error_fd, const char* step) {
  ChildFailure failure{errno, {}};
  std::strncpy(failure.step, step, sizeof failure.step - 1);
  [[maybe_unused]] const ssize_t written = ::write(error_fd, &failure, sizeof failure);
  ::_exit(127);
}

void reset_signals() {
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void connect(int fd, int target, int error_fd) {
  if (fd >= 0 && ::dup2(fd, target) < 0) give_up(error_fd, "redirect");
}

[[noreturn]] void become(const SpawnOptions& options, const Prepared& prepared) {
  const int error_fd = prepared.error_fd;
  if (options.own_group) ::setpgid(0, 0);
  if (options.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != prepared.parent) ::_exit(127);  // it died before we asked
  }
  const int input = options.stdin_fd >= 0 ? options.stdin_fd : ::open("/dev/null", O_RDONLY);
  connect(input, STDIN_FILENO, error_fd);
  connect(options.stdout_fd, STDOUT_FILENO, error_fd);
  connect(options.stderr_fd, STDERR_FILENO, error_fd);
  if (options.namespaces != nullptr) {
    if (const char* step = options.namespaces->enter()) give_up(error_fd, step);
  }
  if (::chdir(prepared.folder.c_str()) != 0) give_up(error_fd, "enter its folder");
  reset_signals();
  ::execve(prepared.path.c_str(), prepared.argv.data(), prepared.environment.data());
  give_up(error_fd, "execute it");
}

Prepared prepare(const SpawnOptions& options, int error_fd) {
  require(!options.argv.empty() && !options.argv[0].empty(), "there is no command to run");
  Prepared prepared;
  prepared.path = find_tool(options.argv[0]);
  if (prepared.path.empty()) {
    fail(ErrorCode::kUnavailable, "can't run '{}': there is no such program", options.argv[0]);
  }
  prepared.argv_storage = options.argv;
  prepared.environment_storage = merged_environment(options.environment);
  prepared.argv = pointers(prepared.argv_storage);
  prepared.environment = pointers(prepared.environment_storage);
  prepared.folder = current_folder();
  prepared.parent = ::getpid();
  prepared.error_fd = error_fd;
  return prepared;
}

pid_t fork_into(const Namespaces* namespaces) {
  if (namespaces == nullptr || !namespaces->pid.valid()) return ::fork();
  const ChildrenGoTo guard(namespaces->pid.get());
  return ::fork();
}

std::string read_all(int fd) {
  std::string text;
  char block[4096];
  for (;;) {
    const ssize_t count = ::read(fd, block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(block, static_cast<size_t>(count));
  }
}

FileDescriptor file_with(std::string_view content) {
  FileDescriptor file(::memfd_create("virga-input", MFD_CLOEXEC));
  const ssize_t written = ::write(file.get(), content.data(), content.size());
  if (written != static_cast<ssize_t>(content.size())) {
    fail(ErrorCode::kResourceExhausted, "no memory for the input of a tool: {}", describe(errno));
  }
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

sigset_t interrupts() {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set, signal);
  return set;
}

}  // namespace

std::pair<FileDescriptor, FileDescriptor> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    fail(ErrorCode::kResourceExhausted, "can't make a pipe: {}", describe(errno));
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string find_tool(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return std::string(name);
  const char* variable = std::getenv("PATH");
  std::string folders = variable != nullptr ? variable : "";
  folders += kSystemFolders;
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string path = fmt::format("{}/{}", std::string_view(folders).substr(begin, end - begin), name);
    if (path[0] == '/' && path[1] != '/' && ::access(path.c_str(), X_OK) == 0) return path;
    begin = end + 1;
  }
  return {};
}

pid_t spawn(const SpawnOptions& options) {
  auto [error_read, error_write] = make_pipe();
  const Prepared prepared = prepare(options, error_write.get());
  const pid_t pid = fork_into(options.namespaces);
  if (pid == 0) become(options, prepared);
  if (pid < 0) {
    fail(ErrorCode::kResourceExhausted, "can't start '{}': {}", options.argv[0], describe(errno));
  }
  error_write.reset();
  const std::string word = read_all(error_read.get());
  if (word.empty()) return pid;
  reap(pid);
  ChildFailure failure{};
  std::memcpy(&failure, word.data(), std::min(word.size(), sizeof failure));
  fail(ErrorCode::kUnavailable, "can't run '{}': {}: {}", options.argv[0], failure.step, describe(failure.error));
}

int reap(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string run_tool(const Arguments& argv, const Namespaces* namespaces, std::string_view input) {
  const FileDescriptor input_file = file_with(input);
  auto [out_read, out_write] = make_pipe();
  auto errors = file_with({});
  SpawnOptions options;
  options.argv = argv;
  options.namespaces = namespaces;
  options.stdin_fd = input_file.get();
  options.stdout_fd = out_write.get();
  options.stderr_fd = errors.get();
  const pid_t pid = spawn(options);
  out_write.reset();
  std::string output = read_all(out_read.get());
  const int status = reap(pid);
  if (status == 0) return output;
  ::lseek(errors.get(), 0, SEEK_SET);
  std::string words = read_all(errors.get());
  while (!words.empty() && words.back() == '\n') words.pop_back();
  fail(ErrorCode::kUnavailable, "'{}' failed: {}", fmt::join(argv, " "), words);
}

InterruptSignals::InterruptSignals() {
  const sigset_t set = interrupts();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  fd_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

InterruptSignals::~InterruptSignals() {
  const sigset_t set = interrupts();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace virga::lab
