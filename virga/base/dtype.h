#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "virga/base/error.h"

namespace virga {

// Element types that travel. The numbers are part of the wire format (docs/wire.md): never renumber.
enum class DType : uint8_t {
  kByte = 0,
  kFloat32 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt64 = 4,
  kFloat64 = 5,
  kInt32 = 6,
};

inline bool is_valid(DType dtype) { return static_cast<uint8_t>(dtype) <= 6; }

inline size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kByte:
      return 1;
    case DType::kFloat32:
      return 4;
    case DType::kFloat16:
      return 2;
    case DType::kBFloat16:
      return 2;
    case DType::kInt64:
      return 8;
    case DType::kFloat64:
      return 8;
    case DType::kInt32:
      return 4;
  }
  fail(ErrorCode::kCorrupt, "unknown dtype number {}", static_cast<int>(dtype));
}

inline std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kByte:
      return "byte";
    case DType::kFloat32:
      return "fp32";
    case DType::kFloat16:
      return "fp16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kInt64:
      return "int64";
    case DType::kFloat64:
      return "fp64";
    case DType::kInt32:
      return "int32";
  }
  return "unknown";
}

}  // namespace virga
