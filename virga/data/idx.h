#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace virga::data {

// An array of bytes with its shape, as an IDX file holds it (the format of MNIST's authors: two
// zero bytes, the element type, the number of dimensions, one big-endian 32-bit size for each, then
// the elements, last dimension fastest).
struct IdxArray {
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;  // product of sizes
};

// Reads an IDX file of unsigned bytes, plain or gzip-compressed (told apart by content), that must
// have `dimensions` dimensions. Reads no more than the header promises, and allocates only what has
// been read. Throws kUnavailable where the file can't be opened, kCorrupt (with the file's name and
// what is wrong) where it is truncated, has bytes left over, fails its checksum, or is no IDX file
// of that kind.
IdxArray read_idx(const std::string& path, int dimensions);

}  // namespace virga::data
