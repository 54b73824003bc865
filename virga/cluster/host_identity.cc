#include "virga/cluster/host_identity.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga::cluster {
namespace {

std::string read_boot_id() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string boot_id;
  if (!std::getline(file, boot_id) || boot_id.empty()) {
    fail(ErrorCode::kUnavailable, "{} can't be read, so the ranks of this host can't be found: mount /proc", kPath);
  }
  return boot_id;
}

struct stat status_of(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0) {
    fail(ErrorCode::kUnavailable, "{} can't be examined, so the ranks of this host can't be found: {}", path,
         std::strerror(errno));
  }
  return status;
}

std::string read_host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, HOST_NAME_MAX) != 0 || name[0] == '\0') return "unknown";
  return name;
}

}  // namespace

HostFacts read_host_facts() {
  HostFacts facts;
  facts.boot_id = read_boot_id();
  facts.ipc_namespace = status_of("/proc/self/ns/ipc").st_ino;
  facts.shm_device = status_of("/dev/shm").st_dev;
  facts.host_name = read_host_name();
  return facts;
}

std::string host_identity(const HostFacts& facts) {
  const std::string text =
      fmt::format("virga host 1\n{}\n{}\n{}\n", facts.boot_id, facts.ipc_namespace, facts.shm_device);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string identity;
  for (int i = 0; i < 8; ++i) identity += fmt::format("{:02x}", digest[i]);
  return identity;
}

}  // namespace virga::cluster
