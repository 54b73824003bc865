#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "virga/pattern/shards.h"

namespace virga::plan {

// A contiguous slice of the flat parameters that is communicated as one.
struct Bucket {
  pattern::Range elements;    // of the flat parameters
  pattern::Range parameters;  // which parameters those are, in order of registration
  bool operator==(const Bucket&) const = default;
};

// How the flat parameters are cut into buckets. Buckets are listed in the order in which backward completes them, from
// the last parameter to the first; they are communicated in this order on every rank, whatever becomes ready when.
struct BucketPlan {
  std::vector<Bucket> buckets;
  size_t elements = 0;
  bool operator==(const BucketPlan&) const = default;
};

// Cuts at parameter borders: from the back, a bucket is closed as soon as it holds `bucket_bytes` of fp32. Zero
// parameters give no bucket.
BucketPlan plan_buckets(std::span<const size_t> parameter_elements, size_t bucket_bytes);

// As text, for rank 0 to publish and for records. parse throws kCorrupt unless the text is a plan whose buckets cover
// the parameters exactly.
std::string to_text(const BucketPlan& plan);
BucketPlan parse_plan(std::string_view text, std::span<const size_t> parameter_elements);

}  // namespace virga::plan
