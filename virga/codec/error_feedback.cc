#include "virga/codec/error_feedback.h"

#include <algorithm>

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
  last_ = {};
  last_ = topk_.error_feedback_select(gradient, residual_, scale, format.k(), format.value_dtype());
  if (last_.finite) {
    format.encode(last_.indices, last_.values, out);
  } else {
    format.encode_poison(out);
  }
  return last_.finite;
}

void ErrorFeedback::restore_last() {
  kernel::scatter_add(residual_, last_.indices, last_.values);
  last_ = {};
}

void ErrorFeedback::set_residual(std::span<const float> residual) {
  require(residual.size() == residual_.size(), "a residual of {} elements can't become one of {}", residual_.size(),
          residual.size());
  if (!kernel::all_finite(residual)) fail(ErrorCode::kNonFinite, "a residual can't hold NaN or Inf");
  std::copy(residual.begin(), residual.end(), residual_.begin());
  last_ = {};
}

}  // namespace virga::codec
