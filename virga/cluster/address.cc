#include "virga/cluster/address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga::cluster {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;  // one entry an address
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error == 0) return {list, freeaddrinfo};
  fail(ErrorCode::kUnavailable, "the host name '{}' can't be resolved: {}", host,
       error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  }
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
}

class Socket {
 public:
  explicit Socket(const addrinfo& info, int type = SOCK_STREAM)
      : descriptor_(socket(info.ai_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

// "10.0.0.1"; empty where the address is none of a network.
std::string numeric(const sockaddr* address, socklen_t length) {
  char ip[NI_MAXHOST];
  return getnameinfo(address, length, ip, sizeof ip, nullptr, 0, NI_NUMERICHOST) == 0 ? ip : "";
}

// 0 or the error number of a connection that has begun.
int wait_connected(int socket, Duration timeout) {
  pollfd poll_entry{socket, POLLOUT, 0};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  if (poll(&poll_entry, 1, static_cast<int>(milliseconds)) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

std::string Address::text() const { return ipv6 ? fmt::format("[{}]:{}", ip, port) : fmt::format("{}:{}", ip, port); }

std::vector<Address> resolve(const std::string& host, int port) {
  const AddressList list = look_up(host, port, 0);
  std::vector<Address> addresses;
  for (const addrinfo* entry = list.get(); entry; entry = entry->ai_next) {
    const std::string ip = numeric(entry->ai_addr, entry->ai_addrlen);
    if (ip.empty()) continue;
    addresses.push_back({ip, port, entry->ai_family == AF_INET6, is_loopback(entry->ai_addr)});
  }
  if (addresses.empty()) fail(ErrorCode::kUnavailable, "the host name '{}' has no address", host);
  return addresses;
}

std::string try_connect(const Address& address, Duration timeout) {
  const AddressList info = look_up(address.ip, address.port, AI_NUMERICHOST);
  const Socket socket(*info);
  int error = 0;
  if (connect(socket.get(), info->ai_addr, info->ai_addrlen) != 0) {
    error = errno == EINPROGRESS ? wait_connected(socket.get(), timeout) : errno;
  }
  if (error == 0) return {};
  const char* hint = error == ECONNREFUSED ? " (nothing listens there yet)" : "";
  return fmt::format("{}: {}{}", address.text(), std::strerror(error), hint);
}

std::string source_ip(const Address& address) {
  const AddressList info = look_up(address.ip, address.port, AI_NUMERICHOST);
  const Socket socket(*info, SOCK_DGRAM);
  sockaddr_storage source{};
  socklen_t length = sizeof source;
  auto* generic = reinterpret_cast<sockaddr*>(&source);
  // Connecting a datagram socket only chooses the way.
  if (connect(socket.get(), info->ai_addr, info->ai_addrlen) != 0) return {};
  return getsockname(socket.get(), generic, &length) == 0 ? numeric(generic, length) : "";
}

std::string interface_with(const std::string& ip) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const bool ipv6 = entry->ifa_addr->sa_family == AF_INET6;
    if (!ipv6 && entry->ifa_addr->sa_family != AF_INET) continue;
    if (numeric(entry->ifa_addr, ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)) == ip) return entry->ifa_name;
  }
  return {};
}

int try_bind(const Address& address) {
  const AddressList info = look_up(address.ip, address.port, AI_NUMERICHOST);
  const Socket socket(*info);
  if (socket.get() < 0) return errno;
  const int on = 1;  // as the server does: a port in TIME_WAIT is free
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return bind(socket.get(), info->ai_addr, info->ai_addrlen) == 0 ? 0 : errno;
}

}  // namespace virga::cluster
