#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "virga/pattern/shards.h"

namespace virga::pattern {

// The parts of a vector, each cut into slices of one length: slice i of all parts is communicated together. A part that
// is shorter than others has fewer slices, and is empty in those behind its last one.
class PartSlices {
 public:
  PartSlices(std::vector<Range> parts, size_t length) : parts_(std::move(parts)), length_(length) {}

  int parts() const { return static_cast<int>(parts_.size()); }
  // Slices of the longest part.
  size_t count() const {
    size_t most = 0;
    for (int part = 0; part < parts(); ++part) most = std::max(most, count(part));
    return most;
  }
  size_t count(int part) const { return slice_count(parts_[static_cast<size_t>(part)].size(), length_); }
  // Where slice `index` of a part lies in the vector.
  Range at(int part, size_t index) const {
    const Range whole = parts_[static_cast<size_t>(part)];
    if (index >= slice_count(whole.size(), length_)) return {whole.end, whole.end};
    const Range inner = slice(whole.size(), index, length_);
    return {whole.begin + inner.begin, whole.begin + inner.end};
  }

  // Calls body(index of the first, how many) for slices in a row that have the same lengths in all parts, in order.
  template <class Body>
  void for_equal(Body body) const {
    std::set<size_t> borders = {0};
    for (const Range& part : parts_) {
      borders.insert(part.size() / length_);
      borders.insert(slice_count(part.size(), length_));
    }
    for (auto begin = borders.begin(), end = std::next(begin); end != borders.end(); begin = end++) {
      body(*begin, *end - *begin);
    }
  }

 private:
  std::vector<Range> parts_;
  size_t length_;
};

}  // namespace virga::pattern
