#include "virga/net/header.h"

#include "virga/base/error.h"

namespace virga::net {

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
    case OpKind::kAllgatherv:
      return "allgatherv";
    case OpKind::kAllreduce:
      return "allreduce";
    case OpKind::kSparseAllreduce:
      return "sparse_allreduce";
  }
  return "unknown operation";
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
  compare("codec", here.codec, there.codec);
  if (here.options != there.options) {  // a hash or packed fields: no numbers that anybody has given
    compare("options (reduction, wire type, density, value type or shape)", fmt::format("{:#x}", here.options),
            fmt::format("{:#x}", there.options));
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
  if (!is_valid(header.kind) || !virga::is_valid(header.dtype)) {
    fail(ErrorCode::kCorrupt, "a message has operation kind {} and dtype {}, which do not exist",
         static_cast<int>(header.kind), static_cast<int>(header.dtype));
  }
  if (header.source < 0 || header.source >= world_size) {
    fail(ErrorCode::kCorrupt, "a message claims to come from rank {} of {}", header.source, world_size);
  }
}

}  // namespace virga::net
