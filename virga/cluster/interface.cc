#include "virga/cluster/interface.h"

#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga::cluster {
namespace {

struct Resolved {
  explicit Resolved(const std::string& host) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_DGRAM;
    const int status = getaddrinfo(host.c_str(), "9", &hints, &list);
    if (status != 0) {
      fail(ErrorCode::kUnavailable, "the rendezvous host '{}' can't be resolved: {}", host, gai_strerror(status));
    }
  }
  ~Resolved() { freeaddrinfo(list); }
  Resolved(const Resolved&) = delete;
  addrinfo* list = nullptr;
};

// The local address that the kernel would use; connecting a datagram socket sends nothing.
bool local_address(const addrinfo& remote, sockaddr_storage& local) {
  const int descriptor = socket(remote.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  socklen_t length = sizeof local;
  const bool found = connect(descriptor, remote.ai_addr, remote.ai_addrlen) == 0 &&
                     getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  close(descriptor);
  return found;
}

bool same_address(const sockaddr* a, const sockaddr_storage& b) {
  if (a == nullptr || a->sa_family != b.ss_family) return false;
  if (a->sa_family == AF_INET) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(&b)->sin_addr, sizeof(in_addr)) == 0;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(&b)->sin6_addr, sizeof(in6_addr)) == 0;
}

std::string interface_with(const sockaddr_storage& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (same_address(entry->ifa_addr, address)) return entry->ifa_name;
  }
  return {};
}

}  // namespace

std::string interface_towards(const std::string& host) {
  if (const char* name = std::getenv("VIRGA_INTERFACE"); name != nullptr && *name != '\0') {
    require(if_nametoindex(name) != 0, "VIRGA_INTERFACE={}: this machine has no such interface", name);
    return name;
  }
  const Resolved resolved(host);
  for (const addrinfo* remote = resolved.list; remote != nullptr; remote = remote->ai_next) {
    sockaddr_storage local{};
    if (!local_address(*remote, local)) continue;
    const std::string name = interface_with(local);
    if (!name.empty()) return name;
  }
  fail(ErrorCode::kUnavailable,
       "no network interface of this machine leads to the rendezvous host '{}'; set VIRGA_INTERFACE to the one to use",
       host);
}

}  // namespace virga::cluster
