#include "virga/cluster/interface.h"

#include <cstdlib>
#include <net/if.h>

#include "virga/base/error.h"
#include "virga/cluster/address.h"

namespace virga::cluster {
namespace {

constexpr int kAnyPort = 9;  // the way does not depend on it

}  // namespace

std::string interface_towards(const std::string& host) {
  if (const char* name = std::getenv("VIRGA_INTERFACE"); name != nullptr && *name != '\0') {
    require(if_nametoindex(name) != 0, "VIRGA_INTERFACE={}: this machine has no such interface", name);
    return name;
  }
  for (const Address& address : resolve(host, kAnyPort)) {
    const std::string source = source_ip(address);
    const std::string name = source.empty() ? "" : interface_with(source);
    if (!name.empty()) return name;
  }
  fail(ErrorCode::kUnavailable,
       "no network interface of this machine leads to the rendezvous host '{}'; set VIRGA_INTERFACE to the one to use",
       host);
}

}  // namespace virga::cluster
