#pragma once

#include <vector>

#include "virga/collective/shape.h"

namespace virga::collective {

// Bytes touched where so many vectors become one.
inline size_t reduced_bytes(size_t inputs, size_t bytes) { return inputs > 1 ? (inputs + 1) * bytes : 0; }

// Where each element is divided.
inline size_t divided_bytes(size_t bytes) { return 2 * bytes; }

// Vectors that become one, in the order in which they are added up: a member's own values, and what others send.
class Inputs {
 public:
  explicit Inputs(Vector own) : own_(own) {}

  void add_own() { spans_.push_back(own_.span()); }
  // Memory for what comes next in order.
  Vector add_incoming() {
    const Vector into = incoming_.emplace_back(own_.elements, own_).vector();
    spans_.push_back(into.span());
    return into;
  }
  size_t count() const { return spans_.size(); }

  // Does nothing to phantoms. `result` may be the member's own values.
  void reduce_into(Vector result, const Shape& shape) const {
    if (!own_.phantom()) kernel::reduce(shape.reduce_op(), shape.dtype, result.span(), spans_);
  }

 private:
  Vector own_;
  std::vector<Scratch> incoming_;
  std::vector<std::span<const std::byte>> spans_;
};

}  // namespace virga::collective
