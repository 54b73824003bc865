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
  kAllreduce = 6,
  kSparseAllreduce = 7,
  kReduce = 8,
  kGather = 9,
  kScatter = 10,
  kAlltoall = 11,
  kNeighborExchange = 12,
};

bool is_valid(OpKind kind);
std::string_view to_string(OpKind kind);

// What becomes of elements that meet. An average is the sum, divided by the number of members. Wire format.
enum class Reduction : uint8_t { kSum = 0, kAverage = 1, kMin = 2, kMax = 3 };
inline bool is_valid(Reduction reduction) { return reduction <= Reduction::kMax; }
std::string_view to_string(Reduction reduction);

// Every message says what it is. 64 bytes, little-endian, no padding (docs/wire.md).
//
// (source, group, operation, chunk) is the address by which a receive finds its message; all other fields must be
// equal on both sides, else the ranks disagree and both get an error that names the difference.
struct Header {
  static constexpr uint32_t kMagic = 0x41475256;  // "VRGA"
  static constexpr uint16_t kVersion = 2;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kByte;
  Epoch epoch = 0;
  OpNumber operation = 0;     // counted per group
  uint64_t elements = 0;      // of the whole operation, not of this message
  uint64_t options = 0;       // a hash of whatever else must agree
  int32_t source = 0;         // world rank of the sender
  int32_t root = -1;          // world rank, -1 where there is none
  uint32_t group = 0;         // hash of the member list
  DType wire = DType::kByte;  // what elements travel as
  Reduction reduction = Reduction::kSum;
  uint16_t algorithm = 0;  // its number in collectives.def
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
