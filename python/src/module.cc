// virga._core: what the Python package needs of the C++ library. Tensors come as address and size; the package has
// checked type, device and contiguity and keeps them alive. Nothing here knows torch, so one build serves all versions.
#include <pybind11/pybind11.h>

#include "virga/base/error.h"

#include "job.h"

namespace py = pybind11;

namespace {

// As virga.errors has them: one class a code, with the rank to blame.
void raise(const virga::Error& error) {
  const py::object made = py::module_::import("virga.errors")
                              .attr("from_core")(std::string(to_string(error.code())), error.what(), error.culprit());
  PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  py::register_exception_translator([](std::exception_ptr exception) {
    try {
      if (exception) std::rethrow_exception(exception);
    } catch (const virga::Error& error) {
      raise(error);
    }
  });
  virga::python::bind_job(module);
  virga::python::bind_exchange(module);
}
