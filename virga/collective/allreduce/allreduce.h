#pragma once

#include <optional>

#include "virga/collective/algorithm.h"

namespace virga::collective {

struct AllreduceOptions {
  AllreduceOptions() = default;
  AllreduceOptions(Reduction reduction, Choice choice = {}) : reduction(reduction), choice(choice) {}  // NOLINT
  AllreduceOptions(Reduction reduction, DType wire, Choice choice = {})
      : reduction(reduction), wire(wire), choice(choice) {}

  Reduction reduction = Reduction::kSum;
  std::optional<DType> wire;  // what travels between hosts; kFloat16 or kBFloat16 for sums and averages of fp32
  Choice choice;
};

// In place: every member ends with the reduction of all members' vectors, element by element, the same bits on all.
// Throws kInvalidArgument before anything is sent for bytes, and for a wire dtype that no algorithm (or not the one
// that was asked for) can send.
Task<void> allreduce(Comm& comm, Group group, Vector data, AllreduceOptions options = {});

}  // namespace virga::collective
