// What the ranks of the lab's tests run: `lab_rank MODE [argument]`.
//   facts            prints where it is: host name, PID namespace, /dev/shm device, IPC namespace,
//   own pid, devices exit STATUS      ends with that status if its rank is odd, else with 0 hold
//   prints the facts and "ready", then sleeps until a signal comes stubborn         the same, but
//   ignores SIGTERM family           as hold, with a child that holds, too, in a session of its own
//   gather BYTES     every rank but 0 sends BYTES to rank 0 by TCP; rank 0 prints "seconds S bytes
//   B" echo             rank 1 prints "answer N" for rank 0's answer to its N-th byte; ends when
//   the connection breaks
// A further argument is ignored: tests find their processes by it.
#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <set>
#include <signal.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int rank() { return std::atoi(variable("RANK").c_str()); }
int size() { return std::atoi(variable("WORLD_SIZE").c_str()); }

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(3);
}

std::string link_text(const char* path) {
  char text[128] = {};
  return ::readlink(path, text, sizeof text - 1) > 0 ? text : "?";
}

// Names in a folder, sorted and joined by commas.
std::string entries(const char* path) {
  std::set<std::string> names;
  DIR* folder = ::opendir(path);
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') names.insert(entry->d_name);
  }
  ::closedir(folder);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

int facts() {
  char name[256] = {};
  struct stat shm {};
  ::gethostname(name, sizeof name - 1);
  if (::stat("/dev/shm", &shm) != 0) die("/dev/shm");
  std::printf("host=%s\nnet_namespace=%s\npid_namespace=%s\nipc_namespace=%s\nshm=%lu\ndevices=%s\n", name,
              link_text("/proc/self/ns/net").c_str(), link_text("/proc/self/ns/pid").c_str(),
              link_text("/proc/self/ns/ipc").c_str(), static_cast<unsigned long>(shm.st_dev),
              entries("/sys/class/net").c_str());
  for (const char* key :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    std::printf("%s=%s\n", key, variable(key).c_str());
  }
  return 0;
}

int hold() {
  facts();
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) ::pause();
}

sockaddr_in master() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<unsigned short>(std::atoi(variable("MASTER_PORT").c_str())));
  ::inet_pton(AF_INET, variable("MASTER_ADDR").c_str(), &address.sin_addr);
  return address;
}

int listen_as_master() {
  const int server = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = master();
  const int on = 1;
  ::setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) die("bind");
  if (::listen(server, 64) != 0) die("listen");
  return server;
}

// The master may not listen yet: each refusal is followed by another try, for ten seconds.
int connect_to_master() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = master();
    if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return client;
    }
    ::close(client);
    if (std::chrono::steady_clock::now() > deadline) die("connect");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int receive_from_all() {
  const int server = listen_as_master();
  std::vector<pollfd> clients;
  for (int i = 1; i < size(); ++i) clients.push_back({::accept(server, nullptr, nullptr), POLLIN, 0});
  const auto start = std::chrono::steady_clock::now();
  std::vector<char> block(1 << 20);
  unsigned long total = 0;
  for (size_t open = clients.size(); open > 0;) {
    ::poll(clients.data(), clients.size(), -1);
    for (pollfd& client : clients) {
      if (client.revents == 0) continue;
      const ssize_t count = ::read(client.fd, block.data(), block.size());
      if (count > 0) {
        total += static_cast<unsigned long>(count);
      } else {
        ::close(client.fd);
        client.fd = -1;
        --open;
      }
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("seconds %.4f bytes %lu\n", seconds.count(), total);
  return 0;
}

int gather(unsigned long bytes) {
  if (rank() == 0) return receive_from_all();
  const int client = connect_to_master();
  const std::vector<char> block(1 << 16);
  for (unsigned long left = bytes; left > 0;) {
    const ssize_t count = ::write(client, block.data(), std::min(left, block.size()));
    if (count < 0) die("write");
    left -= static_cast<unsigned long>(count);
  }
  return 0;
}

int echo() {
  char byte = 1;
  if (rank() == 0) {
    const int peer = ::accept(listen_as_master(), nullptr, nullptr);
    while (::read(peer, &byte, 1) == 1 && ::write(peer, &byte, 1) == 1) {
    }
    return 0;
  }
  const int peer = connect_to_master();
  for (int number = 1; ::write(peer, &byte, 1) == 1 && ::read(peer, &byte, 1) == 1; ++number) {
    std::printf("answer %d\n", number);
    std::fflush(stdout);
    ::poll(nullptr, 0, 3);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string argument = argc > 2 ? argv[2] : "0";
  if (mode == "facts") return facts();
  if (mode == "exit") return rank() % 2 == 1 ? std::atoi(argument.c_str()) : 0;
  if (mode == "hold") return hold();
  if (mode == "stubborn") return ::signal(SIGTERM, SIG_IGN), hold();
  if (mode == "family") {
    if (::fork() == 0) ::setsid();
    return hold();
  }
  if (mode == "gather") return gather(std::stoul(argument));
  if (mode == "echo") return echo();
  std::fprintf(stderr, "unknown mode '%s'\n", mode.c_str());
  return 2;
}
