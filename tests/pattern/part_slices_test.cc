#include "virga/pattern/part_slices.h"

#include <gtest/gtest.h>

namespace virga::pattern {
namespace {

const std::vector<std::vector<size_t>> kSizes = {
    {0}, {0, 0}, {1}, {10, 10, 10}, {11, 10, 10}, {25, 0, 7, 100, 3}, {0, 40, 39}};

std::vector<Range> parts_of(const std::vector<size_t>& sizes) {
  std::vector<Range> parts;
  for (size_t size : sizes) {
    const size_t begin = parts.empty() ? 0 : parts.back().end;
    parts.push_back({begin, begin + size});
  }
  return parts;
}

TEST(PartSlices, CoverEveryElementOnceInOrder) {
  for (const auto& sizes : kSizes) {
    const std::vector<Range> parts = parts_of(sizes);
    for (size_t length : {1, 3, 10, 1000}) {
      const PartSlices slices(parts, length);
      for (int part = 0; part < slices.parts(); ++part) {
        size_t end = parts[part].begin;
        for (size_t i = 0; i < slices.count(); ++i) {
          EXPECT_EQ(slices.at(part, i).begin, end);
          EXPECT_LE(slices.at(part, i).size(), length);
          end = slices.at(part, i).end;
        }
        EXPECT_EQ(end, parts[part].end);
      }
    }
  }
}

TEST(PartSlices, ThoseCalledEqualAre) {
  for (const auto& sizes : kSizes) {
    for (size_t length : {1, 3, 10, 1000}) {
      const PartSlices slices(parts_of(sizes), length);
      size_t next = 0;
      slices.for_equal([&](size_t first, size_t count) {
        EXPECT_EQ(first, next);
        next = first + count;
        for (size_t i = first; i < next; ++i) {
          for (int part = 0; part < slices.parts(); ++part) {
            EXPECT_EQ(slices.at(part, i).size(), slices.at(part, first).size());
          }
        }
      });
      EXPECT_EQ(next, slices.count());
    }
  }
}

}  // namespace
}  // namespace virga::pattern
