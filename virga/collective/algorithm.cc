#include "virga/collective/algorithm.h"

#include <algorithm>

#include "virga/base/hash.h"

namespace virga::collective {
namespace {

// What slices are tried. Short ones fill a pipeline soon, long ones need few messages. Multiples of 60 KiB, so that a
// few members' shares of one fit into a segment of shared memory (see net/ucx/settings.cc).
constexpr size_t kSliceBytes[] = {60 << 10, 120 << 10, 240 << 10, 480 << 10, 960 << 10, 3840 << 10};

struct Entry {
  uint16_t number;
  const Algorithm* algorithm;
};
constexpr Entry kEntries[] = {
#define VIRGA_COLLECTIVE(number, operation, name) {number, &operation##_##name},
#include "virga/net/collectives.def"
#undef VIRGA_COLLECTIVE
};

uint16_t number_of(const Algorithm* algorithm) {
  return std::find_if(std::begin(kEntries), std::end(kEntries),
                      [&](const Entry& entry) { return entry.algorithm == algorithm; })
      ->number;
}

std::string known(OpKind kind) {
  std::string names;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->kind == kind) names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm->name);
  }
  return names;
}

// The algorithms that are left to choose from.
std::vector<const Algorithm*> candidates(const Shape& shape, std::string_view name) {
  std::vector<const Algorithm*> found;
  if (!name.empty()) found.push_back(&find_algorithm(shape.kind, name));
  for (const Algorithm* algorithm : algorithms()) {
    if (name.empty() && algorithm->kind == shape.kind) found.push_back(algorithm);
  }
  std::erase_if(found,
                [&](const Algorithm* algorithm) { return algorithm->fits != nullptr && !algorithm->fits(shape); });
  require(!found.empty(), "no {}{}{} takes {} elements with {} on the wire, among {} ranks of {} hosts",
          net::to_string(shape.kind), name.empty() ? "" : " ", name, to_string(shape.dtype), to_string(shape.wire),
          shape.members(), shape.layout->host_count());
  return found;
}

// Everything that a plan depends on but figures.
uint64_t key_of(const Group& group, const Shape& shape, const Choice& choice) {
  const uint64_t numbers[] = {group.hash(),
                              static_cast<uint64_t>(shape.kind),
                              static_cast<uint64_t>(shape.dtype),
                              shape.elements,
                              static_cast<uint64_t>(shape.root),
                              static_cast<uint64_t>(shape.reduction),
                              static_cast<uint64_t>(shape.divisor),
                              static_cast<uint64_t>(shape.wire),
                              shape.fingerprint(),
                              choice.slice_bytes,
                              fnv1a(choice.algorithm)};
  return fnv1a({reinterpret_cast<const char*>(numbers), sizeof numbers});
}

}  // namespace

const std::vector<const Algorithm*>& algorithms() {
  static const std::vector<const Algorithm*> all = [] {
    std::vector<const Algorithm*> list;
    for (const Entry& entry : kEntries) list.push_back(entry.algorithm);
    return list;
  }();
  return all;
}

const Algorithm& find_algorithm(OpKind kind, std::string_view name) {
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->kind == kind && algorithm->name == name) return *algorithm;
  }
  const std::string_view what = net::to_string(kind);
  require(!name.empty(), "{} takes an algorithm by its name, since their results differ; known are {}", what,
          known(kind));
  fail(ErrorCode::kInvalidArgument, "unknown {} '{}'; known are {}", what, name, known(kind));
}

double predict(const Algorithm& algorithm, const Shape& shape, const Figures& figures) {
  Ledger ledger(*shape.layout, figures);
  algorithm.charge(shape, ledger);
  return ledger.seconds();
}

Plan choose(const Shape& shape, const Figures& figures, const Choice& choice) {
  require(choice.slice_bytes % 64 == 0, "slices of {} bytes: must be a multiple of 64", choice.slice_bytes);
  Plan best{nullptr, 0, 0};
  Shape trial = shape;
  const auto consider = [&](const Algorithm* algorithm, size_t slice_bytes) {
    trial.slice_bytes = slice_bytes;
    const double seconds = predict(*algorithm, trial, figures);
    if (best.algorithm == nullptr || seconds < best.seconds) best = {algorithm, slice_bytes, seconds};
  };
  for (const Algorithm* algorithm : candidates(shape, choice.algorithm)) {
    if (choice.slice_bytes > 0) {
      consider(algorithm, choice.slice_bytes);
      continue;
    }
    for (size_t slice_bytes : kSliceBytes) {
      consider(algorithm, slice_bytes);
      if (slice_bytes >= shape.bytes()) break;  // longer ones are the same
    }
  }
  return best;
}

std::shared_ptr<const cluster::Topology> layout_of(Comm& comm, const Group& group) {
  return comm.remembered(group.hash(), [&] {
    return std::shared_ptr<const cluster::Topology>(
        std::make_shared<const cluster::Topology>(comm.topology().of(group)));
  });
}

Task<void> perform(Comm& comm, Request request, const Choice& choice) {
  const Group group = request.group;
  Shape& shape = request.shape;
  shape.layout = layout_of(comm, group);
  const Plan plan =
      comm.remembered(key_of(group, shape, choice), [&] { return choose(shape, comm.figures(), choice); });
  shape.slice_bytes = plan.slice_bytes;
  cluster::OpDescriptor descriptor{shape.kind, shape.dtype, shape.elements};
  if (shape.root >= 0) descriptor.root = group.rank(shape.root);
  descriptor.wire = shape.wire;
  descriptor.reduction = shape.reduction;
  descriptor.algorithm = number_of(plan.algorithm);
  descriptor.options = shape.fingerprint();
  return comm.perform(group, descriptor, [&](Operation& op) { return plan.algorithm->run(op, std::move(request)); });
}

}  // namespace virga::collective
