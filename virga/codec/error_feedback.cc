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
  return compress_part(gradient, 0, scale, format, out);
}

bool ErrorFeedback::compress(std::span<const float> gradient, float scale, std::span<const SparseFormat> parts,
                             std::span<std::byte> out) {
  size_t elements = 0, bytes = 0;
  for (const SparseFormat& part : parts) {
    elements += part.n();
    bytes += part.n() > 0 ? part.payload_bytes() : 0;
  }
  require(elements == residual_.size() && gradient.size() == residual_.size(),
          "a residual of {} elements got a gradient of {} and parts of {} in all", residual_.size(), gradient.size(),
          elements);
  require(out.size() == bytes, "{} bytes given for sparse messages of {} bytes", out.size(), bytes);
  forget_last();
  bool finite = true;
  size_t begin = 0;
  for (const SparseFormat& part : parts) {
    if (part.n() == 0) continue;
    const bool part_finite =
        compress_part(gradient.subspan(begin, part.n()), begin, scale, part, out.first(part.payload_bytes()));
    finite = finite && part_finite;
    begin += part.n();
    out = out.subspan(part.payload_bytes());
  }
  return finite;
}

bool ErrorFeedback::compress_part(std::span<const float> gradient, size_t begin, float scale,
                                  const SparseFormat& format, std::span<std::byte> out) {
  const std::span<float> residual = std::span(residual_).subspan(begin, gradient.size());
  const kernel::Selection sent =
      topk_.error_feedback_select(gradient, residual, scale, format.k(), format.value_dtype());
  if (!sent.finite) {
    format.encode_poison(out);
    return false;
  }
  format.encode(sent.indices, sent.values, out);
  for (size_t i = 0; i < sent.indices.size(); ++i) {
    last_.add(static_cast<uint32_t>(begin) + sent.indices[i], sent.values[i]);
  }
  return true;
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
  last_.clear();
  before_.clear();
}

}  // namespace virga::codec
