#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "virga/cluster/job.h"

#include "interruptible.h"

namespace virga::python {

using JobHandle = std::shared_ptr<OwnProcess<cluster::Job>>;

// One operation that is under way. It holds what the operation writes to (a tensor) until it has ended.
class Work {
 public:
  Work(JobHandle job, std::future<void> future, pybind11::object memory)
      : job_(std::move(job)), future_(std::move(future)), memory_(std::move(memory)), process_(getpid()) {}
  ~Work();

  bool done() const;
  pybind11::object wait();

 private:
  JobHandle job_;
  std::future<void> future_;
  pybind11::object memory_;
  const pid_t process_;
};

// Calls what waits for other ranks and has no wait of its own that Ctrl-C could end: on another thread. If Ctrl-C
// comes, the job ends on all ranks, and the call with it.
void interruptible(const JobHandle& job, std::function<void()> call);

void bind_job(pybind11::module_& module);
void bind_exchange(pybind11::module_& module);

}  // namespace virga::python
