#pragma once

#include <cstdint>
#include <span>

#include "virga/base/dtype.h"

// Loops that touch every element once. Sizes must agree: kInvalidArgument otherwise. Spans either
// coincide or don't overlap. 16-bit spans hold IEEE half or bfloat16 bits; conversions round as
// virga/base/half.h does. Every instruction set gives the same bits (where two NaNs meet, only that
// the result is NaN).
namespace virga::kernel {

// dst[i] += src[i]
void add(std::span<float> dst, std::span<const float> src);
void add_half(std::span<float> dst, std::span<const uint16_t> src);
void add_bfloat16(std::span<float> dst, std::span<const uint16_t> src);

// dst[i] *= factor
void scale(std::span<float> dst, float factor);

// dst[i] = 16-bit float of src[i] * factor. Past the range of half a value becomes Inf.
void pack_half(std::span<uint16_t> dst, std::span<const float> src, float factor = 1.0f);
void pack_bfloat16(std::span<uint16_t> dst, std::span<const float> src, float factor = 1.0f);

// dst[i] = float of src[i]
void unpack_half(std::span<float> dst, std::span<const uint16_t> src);
void unpack_bfloat16(std::span<float> dst, std::span<const uint16_t> src);

// True if no element is NaN or Inf.
bool all_finite(std::span<const float> x);

// Rounds every value to the nearest that `dtype` can hold; a value past the range becomes the
// largest finite one, never Inf. kFloat32 leaves all as they are; dtypes that aren't floats are
// kInvalidArgument.
void round_to(DType dtype, std::span<float> values);

// dst[i] = src[indices[i]]. Every index must be below src.size(): whoever decoded them has checked
// that; debug builds check again. dst doesn't overlap src.
void gather(std::span<float> dst, std::span<const float> src, std::span<const uint32_t> indices);

// dst[indices[i]] += values[i], in order of i. Every index must be below dst.size(), as for gather.
void scatter_add(std::span<float> dst, std::span<const uint32_t> indices, std::span<const float> values);

}  // namespace virga::kernel
