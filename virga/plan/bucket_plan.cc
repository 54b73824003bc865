#include "virga/plan/bucket_plan.h"

#include <charconv>
#include <numeric>

#include "virga/base/error.h"

namespace virga::plan {

BucketPlan plan_buckets(std::span<const size_t> parameter_elements, size_t bucket_bytes) {
  require(bucket_bytes >= sizeof(float), "a bucket must hold at least 4 bytes, got {}", bucket_bytes);
  BucketPlan plan;
  plan.elements = std::accumulate(parameter_elements.begin(), parameter_elements.end(), size_t{0});
  size_t last = parameter_elements.size(), end = plan.elements, begin = end;
  for (size_t i = parameter_elements.size(); i-- > 0;) {
    begin -= parameter_elements[i];
    if ((end - begin) * sizeof(float) < bucket_bytes && i > 0) continue;
    plan.buckets.push_back({{begin, end}, {i, last}});
    end = begin;
    last = i;
  }
  return plan;
}

// "buckets 2: 5 3 0": the number of buckets, then the borders in parameters from the back.
std::string to_text(const BucketPlan& plan) {
  std::string text = fmt::format("buckets {}:", plan.buckets.size());
  for (const Bucket& bucket : plan.buckets) text += fmt::format(" {}", bucket.parameters.begin);
  return text;
}

namespace {

size_t parse_number(std::string_view& text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) fail(ErrorCode::kCorrupt, "a bucket plan has no number at '{}'", text.substr(0, 20));
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

void expect(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) fail(ErrorCode::kCorrupt, "a bucket plan lacks '{}'", word);
  text.remove_prefix(word.size());
}

}  // namespace

BucketPlan parse_plan(std::string_view text, std::span<const size_t> parameter_elements) {
  expect(text, "buckets");
  const size_t count = parse_number(text);
  expect(text, ":");
  BucketPlan plan;
  plan.elements = std::accumulate(parameter_elements.begin(), parameter_elements.end(), size_t{0});
  size_t last = parameter_elements.size(), end = plan.elements;
  for (size_t i = 0; i < count; ++i) {
    const size_t first = parse_number(text);
    if (first >= last)
      fail(ErrorCode::kCorrupt, "bucket {} of a plan begins at parameter {}, not below {}", i, first, last);
    const size_t begin = end - std::accumulate(parameter_elements.begin() + static_cast<ptrdiff_t>(first),
                                               parameter_elements.begin() + static_cast<ptrdiff_t>(last), size_t{0});
    plan.buckets.push_back({{begin, end}, {first, last}});
    last = first;
    end = begin;
  }
  if (last != 0 || !text.empty()) fail(ErrorCode::kCorrupt, "a bucket plan doesn't cover all parameters");
  return plan;
}

}  // namespace virga::plan
