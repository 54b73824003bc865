#pragma once

#include <algorithm>
#include <functional>

#include "virga/cluster/comm.h"
#include "virga/collective/vector.h"

// How a long vector is cut into slices that are under way at once: while one is reduced, others are on the wire.
namespace virga::collective {

constexpr size_t kLanes = 4;  // slices of one operation that are under way together

// Of what goes both ways in no slices, bytes of a message at most. Very long ones UCX announces first (from 16 MiB on,
// see net/ucx/settings.cc), and the answer waits behind what the receiver is sending: it would take twice as long.
constexpr size_t kLongestMessage = size_t{3840} << 10;

// What a member may have on its way that others may have to keep, in bytes.
constexpr size_t kMostUnderWay = size_t{128} << 20;

// Message numbers of one operation: which phase of the algorithm, which slice, which step. Each algorithm uses them as
// it likes, as long as no two messages between the same two ranks share one.
inline uint64_t chunk_number(unsigned phase, size_t slice, unsigned step) {
  return uint64_t{phase} << 56 | uint64_t{slice} << 16 | step;
}

// Runs `lane(i)` for i in [0, count) with at most `width` at once, in order of i. Tasks that have not begun when one
// fails never begin.
Task<void> run_lanes(size_t count, size_t width, CancelScope& scope, std::function<Task<void>(size_t)> lane);

// Slices that travel from the leaves of a tree to its root, and back as soon as they are there: runs there(i) and
// back(i) for i in [0, count) in order of i, each way with `lanes` of its own, so that neither keeps the other waiting.
// `edges` are between this member and the root, where a slice turns around. Leaves, where all slices begin and end,
// have no more on their way than fill the tree, `lanes` an edge, or kMostUnderWay bytes: they could send faster than
// those above them, who would have to keep what comes too early.
Task<void> run_there_and_back(size_t count, size_t slice_bytes, size_t lanes, int edges, bool leaf, CancelScope& scope,
                              std::function<Task<void>(size_t)> there, std::function<Task<void>(size_t)> back);

// Runs body(slice, its index) (-> Task<void>) for the slices of a vector, kLanes at once.
template <class Body>
Task<void> run_slices(cluster::Operation& op, Vector vector, size_t slice_elements, Body body) {
  return run_lanes(pattern::slice_count(vector.elements, slice_elements), kLanes, op.scope(),
                   [vector, slice_elements, body = std::move(body)](size_t i) {
                     return body(vector.part(pattern::slice(vector.elements, i, slice_elements)), i);
                   });
}

// Calls body(elements, how often) for the slices of a vector: the whole ones together, then what is left.
template <class Body>
void for_equal_slices(size_t elements, size_t slice, Body body) {
  if (elements >= slice) body(slice, elements / slice);
  if (elements % slice > 0) body(elements % slice, size_t{1});
}

}  // namespace virga::collective
