#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "virga/base/dtype.h"
#include "virga/base/ids.h"

namespace virga::net {

// Which operation a message belongs to. Numbers are wire format (docs/wire.md): never renumber.
enum class OpKind : uint8_t {
  kBarrier = 1,
  kBroadcast = 2,
  kReduceScatter = 3,
  kAllgather = 4,
  kAllgatherv = 5,
  kAllreduce = 6,
  kSparseAllreduce = 7,
};

inline bool is_valid(OpKind kind) { return kind >= OpKind::kBarrier && kind <= OpKind::kSparseAllreduce; }
std::string_view to_string(OpKind kind);

// Every message says what it is. 64 bytes, little-endian, no padding (docs/wire.md).
//
// (source, group, operation, chunk) is the address by which a receive finds its message; all other fields must be
// equal on both sides, else the ranks disagree and both get an error that names the difference.
struct Header {
  static constexpr uint32_t kMagic = 0x41475256;  // "VRGA"
  static constexpr uint16_t kVersion = 1;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kByte;
  Epoch epoch = 0;
  OpNumber operation = 0;  // counted per group
  uint64_t elements = 0;   // of the whole operation, not of this message
  uint64_t options = 0;    // whatever else must agree: k, wire dtype, algorithm; see OpDescriptor
  int32_t source = 0;      // world rank of the sender
  int32_t root = -1;       // world rank, -1 where there is none
  uint32_t group = 0;      // hash of the member list
  uint32_t codec = 0;      // how the payload is packed
  uint64_t chunk = 0;      // which message of the operation: phase, step and slice, as the algorithm numbers them
};
static_assert(sizeof(Header) == 64, "the header is wire format");

// "allreduce #12 (fp32 × 1024, epoch 3)" for error messages.
std::string describe(const Header& header);

// What differs between two headers that should agree, as text ("root 0 here, 3 there"); empty if nothing does.
// Address fields (source, chunk) are not compared.
std::string difference(const Header& here, const Header& there);

// Throws kCorrupt unless the header is one of ours, of this version, with known enums and a source below world_size.
void validate(const Header& header, int world_size);

}  // namespace virga::net
