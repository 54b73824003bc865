#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>

#include "virga/base/dtype.h"
#include "virga/net/transport.h"
#include "virga/pattern/shards.h"

namespace virga::collective {

// The dtype of a C++ type. Halves have none: they are 16-bit numbers in C++.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::same_as<T, float>) return DType::kFloat32;
  if constexpr (std::same_as<T, double>) return DType::kFloat64;
  if constexpr (std::same_as<T, int32_t>) return DType::kInt32;
  if constexpr (std::same_as<T, int64_t>) return DType::kInt64;
  if constexpr (std::same_as<T, std::byte>) return DType::kByte;
}

// The elements that a collective works on. A phantom vector has elements but no data (see net::Buffer).
struct Vector {
  std::byte* data = nullptr;
  size_t elements = 0;
  DType dtype = DType::kFloat32;

  Vector() = default;
  Vector(void* data, size_t elements, DType dtype)
      : data(static_cast<std::byte*>(data)), elements(elements), dtype(dtype) {}
  template <class T>
  Vector(std::span<T> span) : Vector(span.data(), span.size(), dtype_of<T>()) {}   // NOLINT: spans are vectors
  Vector(net::Buffer buffer) : Vector(buffer.data, buffer.bytes, DType::kByte) {}  // NOLINT: so are bytes

  bool phantom() const { return data == nullptr && elements > 0; }
  size_t bytes() const { return elements * size_of(dtype); }
  net::Buffer buffer() const { return {data, bytes()}; }
  std::span<std::byte> span() const { return {data, bytes()}; }
  // Only of fp32.
  std::span<float> floats() const { return {reinterpret_cast<float*>(data), elements}; }

  Vector part(pattern::Range range) const {
    return {data == nullptr ? nullptr : data + range.begin * size_of(dtype), range.size(), dtype};
  }
};

// Memory for elements, not initialised; a phantom where `like` is one.
class Scratch {
 public:
  Scratch(size_t elements, DType dtype, const Vector& like)
      : memory_(like.phantom() ? nullptr : std::make_unique_for_overwrite<std::byte[]>(elements * size_of(dtype))),
        vector_(memory_.get(), elements, dtype) {}
  Scratch(size_t elements, const Vector& like) : Scratch(elements, like.dtype, like) {}

  const Vector& vector() const { return vector_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  Vector vector_;
};

}  // namespace virga::collective
