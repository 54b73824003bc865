#include "virga/net/ucx/settings.h"

#include <sys/statvfs.h>

#include "virga/base/error.h"

namespace virga::net::ucx {
namespace {

// UCX takes its receive buffers from here and dies by SIGBUS, long after, where there is too
// little.
void require_shared_memory() {
  constexpr uint64_t kNeeded = 16 << 20;
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) {
    fail(ErrorCode::kUnavailable, "there is no /dev/shm: mount a tmpfs there");
  }
  const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  if (free_bytes < kNeeded) {
    fail(ErrorCode::kUnavailable,
         "/dev/shm has {} bytes free, a rank needs {}: free some or make it larger (docker: "
         "--shm-size=1g)",
         free_bytes, kNeeded);
  }
}

}  // namespace

Context::Options inside_host_settings(int event_descriptor) {
  require_shared_memory();
  Context::Options options;
  options.name = "inside the host";
  options.event_descriptor = event_descriptor;
  // Never a rendezvous: a receive is then either in our mailbox or over, and only sends can be
  // stuck. A message that fits into a segment is read where the sender has put it; longer ones UCX gathers on the heap
  // first. So segments are as long as UCX can tell (16 bits), and few, to stay in the cores' caches.
  options.config = {{"TLS", "posix"},
                    {"RNDV_THRESH", "inf"},
                    {"MM_SEG_SIZE", "65472"},
                    {"MM_FIFO_SIZE", "16"},
                    {"MM_RX_BUFS_GROW", "16"}};
  return options;
}

Context::Options between_hosts_settings(int event_descriptor, const std::string& transports,
                                        const std::string& devices) {
  require(!devices.empty(), "name the network devices between hosts: UCX would listen on every one");
  Context::Options options;
  options.name = fmt::format("between hosts ({} on {})", transports, devices);
  options.event_descriptor = event_descriptor;
  options.errors = UCP_ERR_HANDLING_MODE_PEER;
  // A rendezvous costs a round trip behind whatever else queues on the link: at 1 Gbit/s in both
  // directions, 0.73 of the bytes of the eager way for messages of 64 KiB and 0.88 for 4 MiB, for
  // the same CPU. It is kept for those so large that memory for early ones would hurt. Larger
  // segments save system calls. And connecting must never block the loop (CONN_NB).
  options.config = {{"TLS", transports},    {"NET_DEVICES", devices}, {"RNDV_THRESH", "16M"},
                    {"TX_SEG_SIZE", "64K"}, {"RX_SEG_SIZE", "256K"},  {"CONN_NB", "y"}};
  return options;
}

}  // namespace virga::net::ucx
