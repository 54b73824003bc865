#pragma once

#include <cstdint>
#include <string>

namespace virga::cluster {

// What makes two processes neighbours who can share memory. The boot id alone is common to all
// containers of a machine.
struct HostFacts {
  std::string boot_id;         // one per boot of a kernel
  uint64_t ipc_namespace = 0;  // inode
  uint64_t shm_device = 0;     // device of /dev/shm
  std::string host_name;       // for people only; not part of the identity
};

// Throws kUnavailable that names the file that can't be read.
HostFacts read_host_facts();

// Equal for ranks that share memory, different otherwise: the first 64 bits of the SHA-256 of the
// facts, as 16 hexadecimal digits.
std::string host_identity(const HostFacts& facts);

}  // namespace virga::cluster
