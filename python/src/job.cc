#include "job.h"

#include <algorithm>
#include <pybind11/stl.h>

#include "virga/base/hash.h"
#include "virga/collective/allgather/allgather.h"
#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/barrier/barrier.h"
#include "virga/collective/broadcast/broadcast.h"
#include "virga/collective/reduce_scatter/reduce_scatter.h"
#include "virga/collective/sparse_allreduce/sparse_allreduce.h"
#include "virga/runtime/wait.h"
#include "virga/strategy/strategy.h"

namespace py = pybind11;

namespace virga::python {
namespace {

using collective::Comm;
using collective::Reduction;
using collective::Vector;
using Members = std::optional<std::vector<Rank>>;  // none: all ranks

cluster::Group group_of(const Comm& comm, const Members& members) {
  if (!members) return comm.topology().world();
  for (Rank rank : *members) require(rank < comm.world_size(), "there is no rank {} of {}", rank, comm.world_size());
  cluster::Group group(*members);
  require(group.contains(comm.rank()), "rank {} is not a member of the group", comm.rank());
  return group;
}

Vector vector_at(uintptr_t address, size_t elements, DType dtype = DType::kFloat32) {
  return {reinterpret_cast<void*>(address), elements, dtype};
}
net::Buffer bytes_at(uintptr_t address, size_t bytes) { return {reinterpret_cast<std::byte*>(address), bytes}; }

// By which ranks notice that the same number of bytes is another tensor. No text: nothing to agree on.
uint64_t layout_hash(const std::string& layout) { return layout.empty() ? 0 : fnv1a(layout); }

// A thread joins the job, so that Ctrl-C is heard while ranks are missing. If it comes, the thread is left to end by
// itself: it touches nothing of the interpreter.
JobHandle join(const std::vector<std::pair<std::string, std::string>>& settings, double meeting_timeout,
               double operation_timeout) {
  cluster::JobOptions options;
  for (const auto& [name, value] : settings) options.settings.push_back({name, value});
  options.meeting_timeout = from_seconds(meeting_timeout);
  options.operation_timeout = from_seconds(operation_timeout);
  std::promise<std::unique_ptr<cluster::Job>> promise;
  std::future<std::unique_ptr<cluster::Job>> joined = promise.get_future();
  std::thread([options, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(std::make_unique<cluster::Job>(options));
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  }).detach();
  std::unique_ptr<cluster::Job> job;
  {
    py::gil_scoped_release unlock;
    while (joined.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) check_signals();
    job = joined.get();
  }
  return std::make_shared<OwnProcess<cluster::Job>>(std::move(job));
}

template <class Start>
std::unique_ptr<Work> start(const JobHandle& job, py::object memory, Start begin) {
  return std::make_unique<Work>(job, (*job)->start(std::move(begin)), std::move(memory));
}

// Of a tensor, by its name.
DType parse_dtype(const std::string& name) {
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32, DType::kInt64}) {
    if (name == to_string(dtype)) return dtype;
  }
  fail(ErrorCode::kInvalidArgument, "'{}' can't be reduced", name);
}

// Python's names are torch's.
Reduction parse_reduction(const std::string& name) {
  if (name == "mean") return Reduction::kAverage;
  for (Reduction reduction : {Reduction::kSum, Reduction::kMin, Reduction::kMax}) {
    if (name == net::to_string(reduction)) return reduction;
  }
  fail(ErrorCode::kInvalidArgument, "unknown reduction '{}'", name);
}

// `wire` is for fp32 alone: others travel as they are.
std::unique_ptr<Work> allreduce(const JobHandle& job, uintptr_t address, size_t elements, const std::string& dtype,
                                const std::string& reduction, const std::string& wire, const Members& members,
                                py::object memory) {
  const Vector vector = vector_at(address, elements, parse_dtype(dtype));
  collective::AllreduceOptions options(parse_reduction(reduction), "hierarchical");
  if (vector.dtype == DType::kFloat32) options.wire = strategy::parse_value_dtype(wire);
  return start(job, std::move(memory),
               [=](Comm& comm) { return collective::allreduce(comm, group_of(comm, members), vector, options); });
}

std::unique_ptr<Work> allreduce_sparse(const JobHandle& job, uintptr_t address, size_t elements, bool mean,
                                       double density, const std::string& value_dtype, collective::Selector& selector,
                                       const Members& members, py::object memory) {
  const collective::SparseOptions options(density, strategy::parse_value_dtype(value_dtype),
                                          mean ? Reduction::kAverage : Reduction::kSum);
  return start(job, std::move(memory), [=, &selector](Comm& comm) {
    return collective::sparse_allreduce(comm, group_of(comm, members), vector_at(address, elements), options, selector,
                                        members ? "flat" : "hitopk");
  });
}

std::unique_ptr<Work> broadcast(const JobHandle& job, uintptr_t address, size_t bytes, Rank root,
                                const Members& members, py::object memory, const std::string& layout) {
  return start(job, std::move(memory), [=, layout = layout_hash(layout)](Comm& comm) {
    const Comm::Purpose same(comm, layout);
    return collective::broadcast(comm, group_of(comm, members), root, bytes_at(address, bytes));
  });
}

std::unique_ptr<Work> allgather(const JobHandle& job, uintptr_t address, const std::vector<size_t>& bytes,
                                const Members& members, py::object memory, const std::string& layout) {
  size_t total = 0;
  for (size_t count : bytes) total += count;
  return start(job, std::move(memory), [=, layout = layout_hash(layout)](Comm& comm) {
    const Comm::Purpose same(comm, layout);
    return collective::allgather(comm, group_of(comm, members), bytes_at(address, total), bytes);
  });
}

std::unique_ptr<Work> reduce_scatter(const JobHandle& job, uintptr_t address, size_t elements, const std::string& dtype,
                                     const std::string& reduction, const Members& members, py::object memory) {
  const Vector vector = vector_at(address, elements, parse_dtype(dtype));
  return start(job, std::move(memory), [=, reduction = parse_reduction(reduction)](Comm& comm) {
    return collective::reduce_scatter(comm, group_of(comm, members), vector, reduction);
  });
}

std::unique_ptr<Work> barrier(const JobHandle& job, const Members& members) {
  return start(job, py::none(), [=](Comm& comm) { return collective::barrier(comm, group_of(comm, members)); });
}

// What turns seconds of this job's clock into those of the system's steady clock, Python's time.monotonic(). A reading
// that is interrupted between the two makes it too small.
double clock_offset(const JobHandle& job) {
  constexpr int kReadings = 8;
  Duration offset = Duration::min();
  (*job)->run([&](Comm& comm) -> Task<void> {
    for (int reading = 0; reading < kReadings; ++reading) {
      const Duration steady = std::chrono::steady_clock::now().time_since_epoch();
      offset = std::max(offset, steady - comm.loop().clock().now());
    }
    co_return;
  });
  return to_seconds(offset);
}

// Waits without the interpreter's lock. If Ctrl-C comes, the job ends on all ranks, and with it what is waited for.
void wait_or_interrupt(const JobHandle& job, std::future<void>& future) {
  py::gil_scoped_release unlock;
  virga::wait(future, check_signals, [&] {
    const Rank rank = (*job)->rank();
    (*job)->fail_everywhere(Error(ErrorCode::kAborted, fmt::format("rank {} was interrupted", rank), rank));
  });
}

std::unique_ptr<collective::Selector> make_selector(const JobHandle& job, size_t elements, bool whole) {
  if (whole) return std::make_unique<collective::Selector>(elements);
  const auto range = collective::residual_range("hitopk", (*job)->topology(), (*job)->rank(), elements);
  return std::make_unique<collective::Selector>(range.size());
}

}  // namespace

Work::~Work() {
  if (!future_.valid() || getpid() != process_) return;
  py::gil_scoped_release unlock;
  future_.wait();
}

void interruptible(const JobHandle& job, std::function<void()> call) {
  static_cast<void>(**job);  // throws here, not on the other thread, if there is no job
  std::future<void> done = std::async(std::launch::async, std::move(call));
  wait_or_interrupt(job, done);
}

bool Work::done() const {
  return !future_.valid() || future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

py::object Work::wait() {
  if (future_.valid()) {
    std::future<void> future = std::move(future_);
    wait_or_interrupt(job_, future);
  }
  return memory_;
}

void bind_job(py::module_& module) {
  using Unlock = py::call_guard<py::gil_scoped_release>;
  py::class_<Work>(module, "Work").def("done", &Work::done).def("wait", &Work::wait);
  py::class_<collective::Selector>(module, "Selector");
  py::class_<OwnProcess<cluster::Job>, JobHandle>(module, "Job")
      .def(py::init(&join))
      .def_property_readonly("rank", [](const JobHandle& job) { return (*job)->rank(); })
      .def_property_readonly("world_size", [](const JobHandle& job) { return (*job)->world_size(); })
      .def_property_readonly("local_world_size", [](const JobHandle& job) { return (*job)->local_world_size(); })
      .def_property_readonly("hosts", [](const JobHandle& job) { return (*job)->topology().host_count(); })
      .def("host_of", [](const JobHandle& job, Rank rank) { return (*job)->topology().host_of(rank); })
      .def("exchange",
           [](const JobHandle& job, const std::string& key, const std::string& value) {
             std::vector<std::string> values;
             interruptible(job, [&] { values = (*job)->exchange(key, value); });
             return values;
           })
      .def("require_equal",
           [](const JobHandle& job, const std::string& key, const std::string& value) {
             interruptible(job, [&] { (*job)->require_equal(key, value); });
           })
      .def(
          "fail_everywhere",
          [](const JobHandle& job, const std::string& reason) {
            (*job)->fail_everywhere(Error(ErrorCode::kAborted, reason, (*job)->rank()));
          },
          Unlock())
      .def(
          "dump", [](const JobHandle& job) { return (*job)->dump(); }, Unlock())
      .def(
          "inter_host_bytes", [](const JobHandle& job) { return (*job)->inter_host_bytes(); }, Unlock())
      .def("clock_offset", &clock_offset, Unlock())
      .def("close", [](const JobHandle& job) { job->reset(); })
      .def("allreduce", &allreduce)
      .def("allreduce_sparse", &allreduce_sparse)
      .def("broadcast", &broadcast, py::arg("address"), py::arg("count_bytes"), py::arg("root"), py::arg("members"),
           py::arg("memory"), py::arg("layout") = "")
      .def("allgather", &allgather, py::arg("address"), py::arg("member_bytes"), py::arg("members"), py::arg("memory"),
           py::arg("layout") = "")
      .def("reduce_scatter", &reduce_scatter)
      .def("barrier", &barrier)
      .def("selector", &make_selector);
}

}  // namespace virga::python
