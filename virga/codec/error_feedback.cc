#include "virga/codec/error_feedback.h"

#include <algorithm>
#include <cmath>

#include "virga/base/error.h"
#include "virga/kernel/elementwise.h"

namespace virga::codec {

bool ErrorFeedback::compress(std::span<const float> gradient, float scale, const SparseFormat& format,
                             std::span<std::byte> out) {
  require(format.n() == residual_.size() && gradient.size() == residual_.size(),
          "a residual of {} elements got a gradient of {} and a format of {}", residual_.size(), gradient.size(),
          format.n());
  require(out.size() == format.payload_bytes(), "{} bytes given for a sparse message of {} bytes", out.size(),
          format.payload_bytes());
  forget_last();
  last_ = topk_.error_feedback_select(gradient, residual_, scale, format.k(), format.value_dtype());
  if (last_.finite) {
    format.encode(last_.indices, last_.values, out);
  } else {
    format.encode_poison(out);
  }
  return last_.finite;
}

bool ErrorFeedback::give_back(const Entries& entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!std::isfinite(residual_[entries.indices[i]] + entries.values[i])) return false;
  }
  for (uint32_t index : entries.indices) before_.push_back({index, residual_[index]});
  kernel::scatter_add(residual_, entries.indices, entries.values);
  return true;
}

void ErrorFeedback::restore_last() {
  for (auto before = before_.rbegin(); before != before_.rend(); ++before) residual_[before->index] = before->value;
  kernel::scatter_add(residual_, last_.indices, last_.values);
  forget_last();
}

void ErrorFeedback::set_residual(std::span<const float> residual) {
  require(residual.size() == residual_.size(), "a residual of {} elements can't become one of {}", residual_.size(),
          residual.size());
  if (!kernel::all_finite(residual)) fail(ErrorCode::kNonFinite, "a residual can't hold NaN or Inf");
  std::copy(residual.begin(), residual.end(), residual_.begin());
  forget_last();
}

void ErrorFeedback::forget_last() {
  last_ = {};
  before_.clear();
}

}  // namespace virga::codec
