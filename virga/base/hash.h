#pragma once

#include <cstdint>
#include <string_view>

namespace virga {

// FNV-1a, 64 bits: by which ranks notice that texts or lists differ. Not against an adversary.
inline uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ull;
  return hash;
}

}  // namespace virga
