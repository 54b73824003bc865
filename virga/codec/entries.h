#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "virga/base/dtype.h"

namespace virga::codec {

// A sparse vector in memory: entries in ascending order of index, no index twice.
struct Entries {
  std::vector<uint32_t> indices;
  std::vector<float> values;

  size_t size() const { return indices.size(); }
  void clear() {
    indices.clear();
    values.clear();
  }
  void add(uint32_t index, float value) {
    indices.push_back(index);
    values.push_back(value);
  }
};

// What of the vector is not 0: NaN isn't. Indices count from `begin`.
Entries nonzero(std::span<const float> values, size_t begin = 0);

// The entries of both; where an index is in both, a + b.
Entries sum(const Entries& a, const Entries& b);

// Leaves exactly the k largest magnitudes (kernel::TopK: the lowest index wins among equals), rounded to value_dtype,
// and returns what that takes away: the other entries, and what rounding took off those that are left. Where a value is
// NaN or Inf nothing changes and there is no answer. 1 <= k <= entries.size(): kInvalidArgument otherwise.
std::optional<Entries> keep_largest(Entries& entries, size_t k, DType value_dtype);

}  // namespace virga::codec
