#pragma once

#include "virga/codec/error_feedback.h"
#include "virga/codec/sparse_format.h"
#include "virga/collective/algorithm.h"
#include "virga/runtime/time_span.h"

namespace virga::collective {

// How a sparse allreduce selects and sends.
struct SparseOptions {
  SparseOptions(double density, DType value_dtype, Reduction reduction)
      : density(density), value_dtype(value_dtype), reduction(reduction) {}

  double density;       // kept / all, in (0, 1]; at least one element of a non-empty vector is sent
  DType value_dtype;    // kFloat32, kFloat16 or kBFloat16: what values travel as
  Reduction reduction;  // kSum or kAverage
};

// What a rank keeps between steps for one vector: what it has not sent yet, and when it selected last (on the worker,
// without waiting for it).
struct Selector {
  explicit Selector(size_t elements) : feedback(elements) {}
  codec::ErrorFeedback feedback;
  TimeSpan selected;
};

// Sparse allreduce, in place, of fp32: every member ends with the sum or the average of what was selected of residuals
// + vectors, the same bits on all. If any member's vector holds NaN or Inf, the result holds NaN on all members (see
// codec::SparseFormat). The algorithm must be named: it says who selects from what; selector.feedback has as many
// elements as residual_range(). Throws kInvalidArgument before anything is sent if it has not, and for options that
// can't be followed.
Task<void> sparse_allreduce(Comm& comm, Group group, Vector data, SparseOptions options, Selector& selector,
                            Choice choice);

// The part of a vector of `elements` that a member's residual stands for.
pattern::Range residual_range(std::string_view algorithm, const cluster::Topology& layout, int member, size_t elements);

// The format of the messages for a vector of n elements. Throws kInvalidArgument for options that can't be followed.
codec::SparseFormat sparse_format(size_t n, double density, DType value_dtype);

}  // namespace virga::collective
