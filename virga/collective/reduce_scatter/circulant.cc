// Reduce-scatter on the circulant graph: any number of members in ceil(log2 n) rounds.
//
// In each round a member sends the partial results of the farther half of the parts that it still works on to the
// member that is as far ahead as the nearer half reaches, in one message, and adds what comes from behind to the nearer
// half. Slices of all parts with the same index go together, kLanes at once.
// Rounds ceil(log2 n); bytes S less its own part, as in direct.cc; memory 1.5 slices a lane: the partial results, in
// the order of distance, and what arrives. Order of summation of part i, where x[d] is the vector of the member d
// behind i: for each s = ceil(n/2), ceil(n/4), ..., 1 in turn x[d] += x[d + s] for all d < s where there is an
// x[d + s]; x[0] is the result. Halves are rounded at each addition. The owner divides the sum of an average. A lost
// peer: those it sends to, in the round it is missing; all others through the epoch's first error.
// Source: Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", 2024, written from the description.

#include "virga/pattern/circulant.h"

#include "virga/collective/algorithm.h"
#include "virga/collective/exchange.h"
#include "virga/collective/inputs.h"
#include "virga/collective/part_slices.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

using pattern::Circulant;
using pattern::PartSlices;

// As long as all its parts together.
PartSlices slices_of(const Shape& shape) {
  return part_slices(shape, shape.slice_elements() / static_cast<size_t>(shape.members()));
}

// One slice of all parts as a member holds it: one behind the other, in the order of their distance.
class Packed {
 public:
  Packed(const PartSlices& slices, Circulant graph, size_t index) : graph_(graph), begin_(1) {
    for (int distance = 0; distance < graph.size; ++distance) {
      ranges_.push_back(slices.at(graph.block(distance), index));
      begin_.push_back(begin_.back() + ranges_.back().size());
    }
  }

  size_t elements() const { return begin_.back(); }
  // Where the part at a distance lies in the vector.
  pattern::Range in_vector(int distance) const { return ranges_[static_cast<size_t>(distance)]; }
  // Where parts at these distances lie in the packed slice.
  pattern::Range at(int begin, int end) const {
    return {begin_[static_cast<size_t>(begin)], begin_[static_cast<size_t>(end)]};
  }
  pattern::Range sent(int round) const { return at(graph_.skip(round + 1), graph_.skip(round)); }
  pattern::Range received(int round) const { return at(0, graph_.moved(round)); }

 private:
  Circulant graph_;
  std::vector<pattern::Range> ranges_;
  std::vector<size_t> begin_;
};

size_t copied_bytes(pattern::Range range, DType dtype) { return 2 * range.size() * size_of(dtype); }
size_t finished_bytes(const Shape& shape, pattern::Range own) {
  return (shape.divisor > 1 ? 2 : 1) * copied_bytes(own, shape.dtype);
}

void copy(Vector to, Vector from) {
  if (!from.phantom()) std::copy_n(from.data, from.bytes(), to.data);
}

struct Slice {
  Operation& op;
  const Request& request;
  Circulant graph;
  Packed packed;
  size_t index;

  const Shape& shape() const { return request.shape; }
  Vector in_vector(int distance) const { return request.out.part(packed.in_vector(distance)); }

  Task<void> pass_on(int round, Vector out, Vector in) const {
    const uint64_t chunk = chunk_number(request.phase, index, static_cast<unsigned>(round));
    const Rank ahead = request.group.rank(graph.ahead(round)), behind = request.group.rank(graph.behind(round));
    return exchange(op, chunk, ahead, out, behind, in);
  }
};

Task<void> reduce_slice(Slice slice) {
  const Shape& shape = slice.shape();
  const Scratch memory(slice.packed.elements(), slice.request.out);
  const Scratch incoming(slice.graph.rounds() > 0 ? slice.packed.received(0).size() : 0, slice.request.out);
  const Vector sums = memory.vector();
  co_await slice.op.work(2 * sums.bytes(), [&] {
    for (int i = 0; i < slice.graph.size; ++i) copy(sums.part(slice.packed.at(i, i + 1)), slice.in_vector(i));
  });
  for (int round = 0; round < slice.graph.rounds(); ++round) {
    const Vector nearer = sums.part(slice.packed.received(round));
    const Vector in = incoming.vector().part({0, nearer.elements});
    co_await slice.pass_on(round, sums.part(slice.packed.sent(round)), in);
    co_await slice.op.work(reduced_bytes(2, slice.packed.received(round).size() * size_of(shape.dtype)), [&] {
      if (!in.phantom()) kernel::reduce(shape.reduce_op(), shape.dtype, nearer.span(), in.span());
    });
  }
  const Vector own = slice.in_vector(0);
  co_await slice.op.work(finished_bytes(shape, slice.packed.in_vector(0)), [&] {
    if (own.phantom()) return;
    copy(own, sums.part(slice.packed.at(0, 1)));
    if (shape.divisor > 1) kernel::divide(shape.dtype, own.span(), shape.divisor);
  });
}

Task<void> run(Operation& op, Request request) {
  const Circulant graph{request.group.size(), request.me(op)};
  const PartSlices slices = slices_of(request.shape);
  co_await run_lanes(slices.count(), kLanes, op.scope(), [&](size_t i) {
    return reduce_slice({op, request, graph, Packed(slices, graph, i), i});
  });
}

void charge_slice(const Shape& shape, const std::vector<Packed>& packed, Ledger& ledger) {
  const int n = shape.members();
  ledger.round();
  for (int member = 0; member < n; ++member) {
    ledger.work(member, copied_bytes({0, packed[member].elements()}, shape.dtype));
  }
  for (int round = 0; round < Circulant{n, 0}.rounds(); ++round) {
    ledger.round();
    for (int member = 0; member < n; ++member) {
      const size_t bytes = packed[member].sent(round).size() * size_of(shape.dtype);
      ledger.send(member, Circulant{n, member}.ahead(round), bytes, bytes > 0 ? 1 : 0);
      ledger.work(member, reduced_bytes(2, packed[member].received(round).size() * size_of(shape.dtype)));
    }
  }
  ledger.round();
  for (int member = 0; member < n; ++member) {
    ledger.work(member, finished_bytes(shape, packed[member].in_vector(0)));
  }
}

void charge(const Shape& shape, Ledger& ledger) {
  const PartSlices slices = slices_of(shape);
  ledger.phase();
  slices.for_equal([&](size_t first, size_t count) {
    std::vector<Packed> packed;
    for (int member = 0; member < shape.members(); ++member) {
      packed.emplace_back(slices, Circulant{shape.members(), member}, first);
    }
    ledger.slice(count);
    charge_slice(shape, packed, ledger);
  });
}

}  // namespace

const Algorithm reduce_scatter_circulant{OpKind::kReduceScatter, "circulant", run, charge};

}  // namespace virga::collective
