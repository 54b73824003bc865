#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "virga/codec/sparse_format.h"
#include "virga/kernel/topk.h"

namespace virga::codec {

// Error feedback around top-k: what a message leaves out stays in the residual and is sent later.
// Source: Stich et al., "Sparsified SGD with memory" (2018); Karimireddy et al., "Error feedback
// fixes SignSGD" (2019).
//
// Memory: n floats, the workspace of kernel::TopK, and 8 bytes for each element sent. Not thread-safe.
class ErrorFeedback {
 public:
  // n elements, the residual is zero.
  explicit ErrorFeedback(size_t n) : residual_(n) {}

  // Packs the top format.k() of residual + gradient * scale into `out` and keeps the rest: for
  // every element, sent + residual afterwards equals residual + gradient * scale before, bit for
  // bit (rounded once where an fp16 or bf16 value saturates). Where NaN or Inf comes up, returns
  // false, writes the poison message and leaves the residual exactly as it was. gradient and format
  // must be of n elements, out of format.payload_bytes(): kInvalidArgument otherwise, before
  // anything changes.
  bool compress(std::span<const float> gradient, float scale, const SparseFormat& format, std::span<std::byte> out);

  // The same for parts of the vector, which follow one another, each by itself: one is poisoned
  // without the others. Their messages follow one another, too; an empty part has none. False if one
  // is poisoned.
  bool compress(std::span<const float> gradient, float scale, std::span<const SparseFormat> parts,
                std::span<std::byte> out);

  // Adds entries to the residual that were taken out of messages on their way, here or elsewhere: by
  // an algorithm that sends on less than it gets. Returns false and changes nothing if a sum would be
  // NaN or Inf. Indices must be below n: whoever unpacked them has checked that.
  bool give_back(const Entries& entries);

  // For a step that is skipped on all ranks: undoes what was given back since the last compress and
  // adds what that sent. The residual is then what compress accumulated, bit for bit (but where a
  // value had saturated), and nothing is lost. A second call, or one after a poison message, does
  // nothing.
  void restore_last();

  std::span<const float> residual() const { return residual_; }

  // For checkpoints. Must be finite and of n elements: kNonFinite, kInvalidArgument otherwise.
  void set_residual(std::span<const float> residual);

 private:
  struct Before {  // what the residual was at an index
    uint32_t index;
    float value;
  };
  bool compress_part(std::span<const float> gradient, size_t begin, float scale, const SparseFormat& format,
                     std::span<std::byte> out);
  void forget_last();

  std::vector<float> residual_;
  kernel::TopK topk_;
  Entries last_;                // what the last compress sent
  std::vector<Before> before_;  // where something was given back, in that order
};

}  // namespace virga::codec
