#include "virga/net/header.h"

#include "virga/base/error.h"

namespace virga::net {

namespace {

std::string algorithm_name(uint16_t number) {
  switch (number) {
#define VIRGA_COLLECTIVE(number, operation, name) \
  case number:                                    \
    return #name;
#include "virga/net/collectives.def"
#undef VIRGA_COLLECTIVE
  }
  return fmt::format("number {}", number);
}

}  // namespace

bool is_valid(OpKind kind) { return to_string(kind) != "unknown operation"; }

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kAllgather:
      return "allgather";
    case OpKind::kAllreduce:
      return "allreduce";
    case OpKind::kSparseAllreduce:
      return "sparse_allreduce";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kGather:
      return "gather";
    case OpKind::kScatter:
      return "scatter";
    case OpKind::kAlltoall:
      return "alltoall";
    case OpKind::kNeighborExchange:
      return "neighbor_exchange";
  }
  return "unknown operation";
}

std::string_view to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kAverage:
      return "average";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
  }
  return "unknown reduction";
}

std::string describe(const Header& header) {
  return fmt::format("{} #{} ({} x {}, epoch {})", to_string(header.kind), header.operation,
                     virga::to_string(header.dtype), header.elements, header.epoch);
}

std::string difference(const Header& here, const Header& there) {
  std::string text;
  const auto compare = [&text](std::string_view what, const auto& a, const auto& b) {
    if (a == b) return;
    text += fmt::format("{}{} {} here, {} there", text.empty() ? "" : "; ", what, a, b);
  };
  compare("operation", to_string(here.kind), to_string(there.kind));
  compare("epoch", here.epoch, there.epoch);
  compare("group", here.group, there.group);
  compare("dtype", virga::to_string(here.dtype), virga::to_string(there.dtype));
  compare("elements", here.elements, there.elements);
  compare("root", here.root, there.root);
  compare("algorithm", algorithm_name(here.algorithm), algorithm_name(there.algorithm));
  compare("reduction", to_string(here.reduction), to_string(there.reduction));
  compare("wire dtype", virga::to_string(here.wire), virga::to_string(there.wire));
  if (here.options != there.options) {  // a hash: no number that anybody has given
    compare("options (sizes of parts, density, slices, shape, or which bucket of which replica)",
            fmt::format("{:#x}", here.options), fmt::format("{:#x}", there.options));
  }
  return text;
}

void validate(const Header& header, int world_size) {
  if (header.magic != Header::kMagic) {
    fail(ErrorCode::kCorrupt, "a message does not begin as Virga's do (magic {:#x})", header.magic);
  }
  if (header.version != Header::kVersion) {
    fail(ErrorCode::kCorrupt, "a message has wire version {}, this rank speaks {}: run the same Virga everywhere",
         header.version, Header::kVersion);
  }
  if (!is_valid(header.kind) || !virga::is_valid(header.dtype) || !virga::is_valid(header.wire) ||
      !is_valid(header.reduction)) {
    fail(ErrorCode::kCorrupt, "a message has operation kind {}, dtypes {} and {} and reduction {}: one does not exist",
         static_cast<int>(header.kind), static_cast<int>(header.dtype), static_cast<int>(header.wire),
         static_cast<int>(header.reduction));
  }
  if (header.source < 0 || header.source >= world_size) {
    fail(ErrorCode::kCorrupt, "a message claims to come from rank {} of {}", header.source, world_size);
  }
}

}  // namespace virga::net
