#pragma once

#include <functional>

#include "virga/runtime/loop.h"

namespace virga::cluster {

// Runs a callback on the loop whenever the process gets SIGUSR1: how one looks into a job that seems to stand still.
// One at a time in a process; the last one made gets the signal.
class DumpSignal final : public Source {
 public:
  DumpSignal(Loop& loop, std::function<void()> dump);
  ~DumpSignal() override;

  bool progress() override;
  int descriptor() const override { return wake_; }
  bool arm() override { return true; }
  bool busy() const override { return false; }

 private:
  Loop& loop_;
  std::function<void()> dump_;
  int wake_;  // eventfd, the only thing that the signal handler may touch besides a flag
};

}  // namespace virga::cluster
