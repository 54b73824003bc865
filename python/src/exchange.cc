#include <algorithm>
#include <pybind11/stl.h>

#include "virga/codec/density.h"
#include "virga/strategy/gradient_exchange.h"

#include "job.h"

namespace py = pybind11;

namespace virga::python {
namespace {

using strategy::GradientExchange;

strategy::StrategyOptions strategy_options(double density, const std::string& value_dtype, bool error_feedback) {
  strategy::StrategyOptions options;
  options.density = density;
  options.value_dtype = strategy::parse_value_dtype(value_dtype);
  options.error_feedback = error_feedback;
  return options;
}

// A GradientExchange that keeps its job alive and lets Ctrl-C through.
class Exchange {
 public:
  Exchange(JobHandle job, const std::vector<std::pair<std::string, size_t>>& parameters, uintptr_t gradients,
           const std::string& strategy, double density, const std::string& value_dtype, bool error_feedback,
           const std::string& non_finite, size_t bucket_bytes)
      : job_(std::move(job)), exchange_(nullptr) {
    std::vector<strategy::Parameter> list;
    size_t elements = 0;
    for (const auto& [name, size] : parameters) {
      list.push_back({name, size});
      elements += size;
    }
    strategy::ExchangeOptions options;
    options.strategy = strategy;
    options.strategy_options = strategy_options(density, value_dtype, error_feedback);
    options.non_finite = strategy::parse_non_finite_policy(non_finite);
    options.bucket_bytes = bucket_bytes;
    std::unique_ptr<GradientExchange> agreed;
    interruptible(job_, [&] {
      const std::span<float> memory(reinterpret_cast<float*>(gradients), elements);
      agreed = std::make_unique<GradientExchange>(**job_, std::move(list), memory, options);
    });
    exchange_ = std::make_unique<OwnProcess<GradientExchange>>(std::move(agreed));
  }

  void set_strategy(const std::string& name, const strategy::StrategyOptions& options) {
    interruptible(job_, [&] { get().set_strategy(name, options); });
  }

  GradientExchange& get() const { return **exchange_; }
  void close() { exchange_->reset(); }

 private:
  JobHandle job_;  // outlives the exchange
  std::unique_ptr<OwnProcess<GradientExchange>> exchange_;
};

// (first element of the flat gradient, address, elements) of each.
py::list to_list(const std::vector<strategy::Residual>& residuals) {
  py::list list;
  for (const strategy::Residual& residual : residuals) {
    list.append(
        py::make_tuple(residual.begin, reinterpret_cast<uintptr_t>(residual.values.data()), residual.values.size()));
  }
  return list;
}

std::vector<float> copy_of(uintptr_t address, size_t elements) {
  const float* begin = reinterpret_cast<const float*>(address);
  return {begin, begin + elements};
}

void set_residuals(const Exchange& exchange, const std::vector<std::pair<uintptr_t, size_t>>& parts) {
  std::vector<std::vector<float>> values;
  for (const auto& [address, elements] : parts) values.push_back(copy_of(address, elements));
  exchange.get().set_residuals(values);
}

// For each bucket of the last step: (first parameter, last parameter + 1, elements, seconds when its exchange began and
// ended, seconds when selection in it began and ended; the last two 0 for dense strategies).
py::list bucket_times(const Exchange& exchange) {
  py::list list;
  const GradientExchange& e = exchange.get();
  const std::vector<TimeSpan> selections = e.strategy().select_spans();
  for (size_t b = 0; b < e.plan().buckets.size(); ++b) {
    const plan::Bucket& bucket = e.plan().buckets[b];
    const TimeSpan& span = e.exchange_spans()[b];
    const TimeSpan selection = selections.empty() ? TimeSpan{} : selections[b];
    list.append(py::make_tuple(bucket.parameters.begin, bucket.parameters.end, bucket.elements.size(),
                               to_seconds(span.begin), to_seconds(span.end), to_seconds(selection.begin),
                               to_seconds(selection.end)));
  }
  return list;
}

}  // namespace

void bind_exchange(py::module_& module) {
  using Unlock = py::call_guard<py::gil_scoped_release>;
  module.def("strategies", [] {
    std::vector<std::pair<std::string, std::string>> list;
    for (const auto& entry : strategy::strategies()) list.emplace_back(entry.name, entry.description);
    return list;
  });
  module.def("k_for_density", &codec::k_for_density);
  // Copies `count` floats, for what residuals() points at.
  module.def("copy_floats", [](uintptr_t from, uintptr_t to, size_t count) {
    std::copy_n(reinterpret_cast<const float*>(from), count, reinterpret_cast<float*>(to));
  });
  py::class_<Exchange>(module, "GradientExchange")
      .def(py::init<JobHandle, const std::vector<std::pair<std::string, size_t>>&, uintptr_t, const std::string&,
                    double, const std::string&, bool, const std::string&, size_t>())
      .def(
          "ready", [](Exchange& e, size_t parameter) { e.get().ready(parameter); }, Unlock())
      .def("is_ready", [](const Exchange& e, size_t parameter) { return e.get().is_ready(parameter); })
      .def("forget_step", [](Exchange& e) { return e.get().forget_step(); })
      .def(
          "finish", [](Exchange& e) { return e.get().finish(check_signals); }, Unlock())
      .def("set_strategy",
           [](Exchange& e, const std::string& name, double density, const std::string& value_dtype,
              bool error_feedback) { e.set_strategy(name, strategy_options(density, value_dtype, error_feedback)); })
      .def("carry_over", [](Exchange& e, size_t begin, uintptr_t address,
                            size_t elements) { e.get().carry_over(begin, copy_of(address, elements)); })
      .def("residuals", [](const Exchange& e) { return to_list(e.get().residuals()); })
      .def("carried", [](const Exchange& e) { return to_list(e.get().carried()); })
      .def("set_residuals", &set_residuals)
      .def("bucket_times", &bucket_times)
      .def_property_readonly("density", [](const Exchange& e) { return e.get().strategy().density(); })
      .def_property_readonly(
          "select_seconds",
          [](const Exchange& e) { return to_seconds(strategy::sum(e.get().strategy().select_spans())); })
      .def_property_readonly("inter_host_bytes_formula",
                             [](const Exchange& e) { return e.get().strategy().inter_host_bytes(); })
      .def("close", &Exchange::close);
}

}  // namespace virga::python
