#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "virga/cluster/comm.h"
#include "virga/collective/ledger.h"
#include "virga/collective/shape.h"

namespace virga::collective {

using cluster::Comm;
using cluster::Group;
using cluster::Operation;

struct Selector;  // sparse_allreduce/sparse_allreduce.h

// What one member is asked to do.
struct Request {
  Group group;
  Shape shape;
  Vector in{};                   // what is read; the same as `out` where an operation works in place
  Vector out{};                  // what is written
  Selector* selector = nullptr;  // sparse: what this member keeps between steps
  unsigned phase = 0;            // an algorithm may number its messages by phases [phase, phase + kPhases)

  int me(Operation& op) const { return group.member(op.comm().rank()); }
  bool phantom() const { return in.phantom() || out.phantom(); }
};
constexpr unsigned kPhases = 4;  // of one algorithm; those that are made of others take more

// One way to carry out an operation: how it runs, and what it costs.
struct Algorithm {
  OpKind kind;
  std::string_view name;
  Task<void> (*run)(Operation& op, Request request);
  // Enters in the ledger what all members do, to the byte and to the message.
  void (*charge)(const Shape& shape, Ledger& ledger);
  // Whether it can do what is asked; nullptr: always.
  bool (*fits)(const Shape& shape) = nullptr;
  // Sparse: the part of the vector that a member's residual stands for; nullptr: all of it.
  pattern::Range (*residual)(const Shape& shape, int member) = nullptr;
};

// All ways there are, in the order of net/collectives.def.
const std::vector<const Algorithm*>& algorithms();
// Throws kInvalidArgument for an unknown name; known ones are listed.
const Algorithm& find_algorithm(OpKind kind, std::string_view name);

// Which algorithm, and how long its slices are. What is left open is chosen by cost.
struct Choice {
  Choice() = default;
  Choice(std::string_view algorithm, size_t slice_bytes = 0)  // NOLINT: a name is a choice
      : algorithm(algorithm), slice_bytes(slice_bytes) {}
  Choice(const char* algorithm) : algorithm(algorithm) {}  // NOLINT: so is a literal

  std::string_view algorithm;
  size_t slice_bytes = 0;  // a multiple of 64; 0: open
};

struct Plan {
  const Algorithm* algorithm;
  size_t slice_bytes;
  double seconds;  // as predicted
};

// How long it takes.
double predict(const Algorithm& algorithm, const Shape& shape, const Figures& figures);
// The fastest of all that fit and that `choice` leaves open. Depends on nothing but its arguments. Throws
// kInvalidArgument for an unknown name (known ones are listed), and for one that can't do what is asked.
Plan choose(const Shape& shape, const Figures& figures, const Choice& choice = {});

// Carries out a request whose shape lacks layout and slices only. For the functions that users call: they check what is
// special to their operation, and state what `in` and `out` are.
Task<void> perform(Comm& comm, Request request, const Choice& choice);

// Which members share a host, by their position in the group.
std::shared_ptr<const cluster::Topology> layout_of(Comm& comm, const Group& group);

#define VIRGA_COLLECTIVE(number, operation, name) extern const Algorithm operation##_##name;
#include "virga/net/collectives.def"
#undef VIRGA_COLLECTIVE

}  // namespace virga::collective
