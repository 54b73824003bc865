#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "virga/base/dtype.h"

// What an allreduce does to elements, for every dtype that can be counted with. Spans hold whole, aligned elements and
// have the same size; they coincide or don't overlap. kInvalidArgument otherwise, and for bytes. Every instruction set
// gives the same bits (where two NaNs meet, only that the result is NaN).
//
// Integers wrap around. NaN wins over everything in kMin and kMax, so that it is never lost. fp16 and bf16 are reduced
// in fp32 and rounded to nearest even.
namespace virga::kernel {

enum class ReduceOp : uint8_t { kSum = 0, kMin = 1, kMax = 2 };
std::string_view to_string(ReduceOp op);

// dst[i] = dst[i] op src[i]
void reduce(ReduceOp op, DType dtype, std::span<std::byte> dst, std::span<const std::byte> src);

// dst[i] = inputs[0][i] op inputs[1][i] op ..., from left to right, in one pass over all of them; dst may be one of the
// inputs. Halves are rounded once, at the end. At least one input.
void reduce(ReduceOp op, DType dtype, std::span<std::byte> dst, std::span<const std::span<const std::byte>> inputs);

// dst[i] = dst[i] / divisor: what makes a sum a mean. Integers are divided towards zero. divisor must be above 0.
void divide(DType dtype, std::span<std::byte> dst, int divisor);

}  // namespace virga::kernel
