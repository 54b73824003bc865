#pragma once

#include "virga/codec/error_feedback.h"
#include "virga/codec/sparse_format.h"
#include "virga/collective/vector.h"
#include "virga/runtime/time_span.h"

namespace virga::collective {

// How a sparse allreduce selects and sends.
struct SparseOptions {
  SparseOptions(double density, DType value_dtype, float scale)
      : density(density), value_dtype(value_dtype), scale(scale) {}

  double density;     // kept / all, in (0, 1]; at least one element of a non-empty vector is sent
  DType value_dtype;  // kFloat32, kFloat16 or kBFloat16: what values travel as
  float scale;        // the result is scale * sum: 1 / world size for a mean
};

// What a rank keeps between steps for one vector: what it has not sent yet, and when it selected last (on the worker,
// without waiting for it).
struct Selector {
  explicit Selector(size_t elements) : feedback(elements) {}
  codec::ErrorFeedback feedback;
  TimeSpan selected;
};

// The format of the messages for a vector of n elements. Throws kInvalidArgument for options that can't be followed.
codec::SparseFormat sparse_format(size_t n, const SparseOptions& options);

// For OpDescriptor::options: a hash by which ranks notice that their options differ.
uint64_t fingerprint(const SparseOptions& options);

// The heart of every sparse allreduce, as a phase of a larger operation: each member selects the top k of its residual
// + vector * scale, all exchange what they selected, and `data` becomes the sum of all selections, added in member
// order. If any member's vector held NaN or Inf, `data` becomes NaN in its first element on all members (see
// codec::SparseFormat). selector.feedback.residual() must have data.elements elements; it is not touched by phantom
// vectors.
Task<void> exchange_selected(Operation& op, unsigned phase, Group group, FloatVector data, SparseOptions options,
                             Selector& selector);

}  // namespace virga::collective
