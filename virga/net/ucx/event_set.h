#pragma once

#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga::net::ucx {

// An epoll to which UCX workers add what wakes them, so that a loop watches one descriptor for all.
class EventSet {
 public:
  EventSet() : descriptor_(epoll_create1(EPOLL_CLOEXEC)) {
    if (descriptor_ < 0) fail(ErrorCode::kUnavailable, "the transport gets no descriptor: {}", std::strerror(errno));
  }
  ~EventSet() { ::close(descriptor_); }
  EventSet(const EventSet&) = delete;
  EventSet& operator=(const EventSet&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

}  // namespace virga::net::ucx
