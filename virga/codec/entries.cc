#include "virga/codec/entries.h"

#include <algorithm>

#include "virga/kernel/elementwise.h"
#include "virga/kernel/table.h"
#include "virga/kernel/topk.h"

namespace virga::codec {

Entries nonzero(std::span<const float> values, size_t begin) {
  constexpr size_t kBlock = 2048;
  uint32_t indices[kBlock + 1];
  float found[kBlock + 1];
  Entries entries;
  for (size_t i = 0; i < values.size(); i += kBlock) {
    const size_t size = std::min(kBlock, values.size() - i);
    const auto base = static_cast<uint32_t>(begin + i);
    const size_t count = kernel::select_table().gather(values.data() + i, 0, base, size, indices, found);
    entries.indices.insert(entries.indices.end(), indices, indices + count);
    entries.values.insert(entries.values.end(), found, found + count);
  }
  return entries;
}

Entries sum(const Entries& a, const Entries& b) {
  Entries both;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    const bool in_a = j == b.size() || (i < a.size() && a.indices[i] <= b.indices[j]);
    const bool in_b = i == a.size() || (j < b.size() && b.indices[j] <= a.indices[i]);
    if (in_a && in_b) {
      both.add(a.indices[i], a.values[i] + b.values[j]);
    } else if (in_a) {
      both.add(a.indices[i], a.values[i]);
    } else {
      both.add(b.indices[j], b.values[j]);
    }
    i += in_a;
    j += in_b;
  }
  return both;
}

std::optional<Entries> keep_largest(Entries& entries, size_t k, DType value_dtype) {
  kernel::TopK topk;
  const kernel::Selection largest = topk.select(entries.values, k);
  if (!largest.finite) return std::nullopt;
  Entries kept, rest;
  kept.values.assign(largest.values.begin(), largest.values.end());
  kernel::round_to(value_dtype, kept.values);
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool keeps = kept.indices.size() < k && largest.indices[kept.indices.size()] == i;
    const float taken = keeps ? entries.values[i] - kept.values[kept.indices.size()] : entries.values[i];
    if (keeps) kept.indices.push_back(entries.indices[i]);
    if (taken != 0) rest.add(entries.indices[i], taken);
  }
  entries = std::move(kept);
  return rest;
}

}  // namespace virga::codec
