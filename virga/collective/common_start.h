#pragma once

#include "virga/cluster/comm.h"
#include "virga/runtime/task.h"

// A moment at which all ranks begin: behind a barrier, ranks that leave it early would do part of an operation before
// others look at their clocks.
namespace virga::collective {

class CommonStart {
 public:
  // Finds out by how much this rank's clock is ahead of rank 0's. To be called by all ranks, before wait().
  Task<void> synchronize(cluster::Comm& comm);
  // Ends on all ranks at the same moment; returns it, by this rank's clock. That moment is far enough ahead for all to
  // have heard of it: twice the time that this took the slowest last time.
  Task<Time> wait(cluster::Comm& comm);

 private:
  Duration ahead_{};
  double patience_seconds_ = 0;
};

}  // namespace virga::collective
