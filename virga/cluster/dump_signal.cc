#include "virga/cluster/dump_signal.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "virga/base/error.h"

namespace virga::cluster {
namespace {

std::atomic<int> signal_descriptor{-1};
std::atomic<bool> requested{false};

void on_signal(int) {
  const int saved = errno;
  const int descriptor = signal_descriptor.load();
  const uint64_t one = 1;
  if (descriptor >= 0) [[maybe_unused]]
    auto written = write(descriptor, &one, sizeof one);
  requested.store(true);  // last: who sees it also drains the descriptor
  errno = saved;
}

}  // namespace

DumpSignal::DumpSignal(Loop& loop, std::function<void()> dump)
    : loop_(loop), dump_(std::move(dump)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_ < 0) fail(ErrorCode::kUnavailable, "no descriptor is left for the SIGUSR1 handler");
  signal_descriptor.store(wake_);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  loop_.add_source(*this);
}

DumpSignal::~DumpSignal() {
  loop_.remove_source(*this);
  int mine = wake_;
  signal_descriptor.compare_exchange_strong(mine, -1);
  close(wake_);
}

bool DumpSignal::progress() {
  if (!requested.load(std::memory_order_relaxed) || !requested.exchange(false)) return false;
  uint64_t drained;
  [[maybe_unused]] auto bytes = read(wake_, &drained, sizeof drained);
  dump_();
  return true;
}

}  // namespace virga::cluster
