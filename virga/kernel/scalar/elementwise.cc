// The reference: what every vector path must equal bit for bit.
#include "virga/base/half.h"
#include "virga/kernel/reduce_loops.h"
#include "virga/kernel/table.h"

namespace virga::kernel {
namespace {

void add(float* dst, const float* src, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] += src[i];
}

void add_half(float* dst, const uint16_t* src, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] += half_to_float(src[i]);
}

void add_bfloat16(float* dst, const uint16_t* src, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] += bfloat16_to_float(src[i]);
}

void scale(float* dst, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] *= factor;
}

void pack_half(uint16_t* dst, const float* src, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = float_to_half(src[i] * factor);
}

void unpack_half(float* dst, const uint16_t* src, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = half_to_float(src[i]);
}

void pack_bfloat16(uint16_t* dst, const float* src, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = float_to_bfloat16(src[i] * factor);
}

void unpack_bfloat16(float* dst, const uint16_t* src, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = bfloat16_to_float(src[i]);
}

void sgd(float* param, const float* grad, float lr, float weight_decay, size_t n) {
  for (size_t i = 0; i < n; ++i) param[i] += -lr * (grad[i] + weight_decay * param[i]);
}

void sgd_momentum(float* param, const float* grad, float* momentum_buffer, float lr, float momentum, float weight_decay,
                  size_t n) {
  for (size_t i = 0; i < n; ++i) {
    momentum_buffer[i] = momentum_buffer[i] * momentum + (grad[i] + weight_decay * param[i]);
    param[i] += -lr * momentum_buffer[i];
  }
}

// 16-bit floats as reduce_loops.h wants them.
template <float (*from)(uint16_t), uint16_t (*to)(float)>
struct Half {
  using Element = uint16_t;
  using Wide = float;
  static constexpr size_t kLanes = 1;
  static Wide load(const uint16_t* x) { return from(*x); }
  static void store(uint16_t* x, Wide wide) { *x = to(wide); }
};

constexpr size_t kBytes = 16;  // compilers know such vectors on every machine

}  // namespace

const ReduceTable kReduceScalar =
    kReduceLoops<kBytes, Half<half_to_float, float_to_half>, Half<bfloat16_to_float, float_to_bfloat16>>;

const ElementwiseTable kElementwiseScalar = {
    .add = add,
    .add_half = add_half,
    .add_bfloat16 = add_bfloat16,
    .scale = scale,
    .pack_half = pack_half,
    .unpack_half = unpack_half,
    .pack_bfloat16 = pack_bfloat16,
    .unpack_bfloat16 = unpack_bfloat16,
    .sgd = sgd,
    .sgd_momentum = sgd_momentum,
};

}  // namespace virga::kernel
