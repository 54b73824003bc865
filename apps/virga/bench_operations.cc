#include "bench_operations.h"

#include <algorithm>

#include "virga/collective/allgather/allgather.h"
#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/alltoall/alltoall.h"
#include "virga/collective/barrier/barrier.h"
#include "virga/collective/broadcast/broadcast.h"
#include "virga/collective/gather/gather.h"
#include "virga/collective/neighbor_exchange/neighbor_exchange.h"
#include "virga/collective/reduce/reduce.h"
#include "virga/collective/reduce_scatter/reduce_scatter.h"
#include "virga/collective/scatter/scatter.h"

namespace virga::command {
namespace {

using cluster::Comm;
using cluster::Group;
using collective::Choice;
using collective::OpKind;
using collective::Reduction;
using collective::Shape;
using collective::Vector;

// Element e of what a rank gives: a whole number, so that sums come out the same in any order; below 2^16, so that
// those of 256 ranks are exact.
float value(Rank rank, size_t e) {
  const auto mixed = static_cast<uint32_t>(e * 2'654'435'761U) ^ static_cast<uint32_t>(rank * 40'503);
  return static_cast<float>(mixed >> 16);
}

float sum(const BenchCase& data, size_t e) {
  float all = 0;
  for (Rank rank = 0; rank < data.ranks; ++rank) all += value(rank, e);
  return all;
}

// Whose part element e of a vector lies in.
int owner(const BenchCase& data, size_t e) {
  int found = 0;
  while (data.part(found).end <= e) ++found;
  return found;
}

Group world(Comm& comm) { return comm.topology().world(); }
Vector own_part(const BenchCase& data, std::vector<float>& of) {
  return Vector(std::span<float>(of)).part(data.part(data.rank));
}

std::vector<size_t> shares(const BenchCase& data) {
  std::vector<size_t> sizes;
  for (int member = 0; member < data.ranks; ++member) sizes.push_back(data.part(member).size());
  return sizes;
}

// In a ring: how many neighbours a member of n has, and which.
size_t neighbor_count(const BenchCase& data) { return static_cast<size_t>(std::min(data.ranks - 1, 2)); }
int neighbor(int n, int member, size_t which) {
  const int before = (member + n - 1) % n, behind = (member + 1) % n;
  return which == 0 ? std::min(before, behind) : std::max(before, behind);
}

std::vector<std::vector<int>> ring(const BenchCase& data) {
  std::vector<std::vector<int>> graph(static_cast<size_t>(data.ranks));
  for (int i = 0; i < data.ranks; ++i) {
    for (size_t which = 0; which < neighbor_count(data); ++which) {
      graph[static_cast<size_t>(i)].push_back(neighbor(data.ranks, i, which));
    }
  }
  return graph;
}

double whole(const BenchCase&, int n) { return n > 1 ? 1.0 : 0.0; }
double shifted(const BenchCase&, int n) { return static_cast<double>(n - 1) / n; }
void at_root(const BenchCase&, Shape& shape) { shape.root = 0; }

// In an alltoall every member's vector is cut the same way.
void describe_alltoall(const BenchCase& data, Shape& shape) {
  shape.elements = data.elements * static_cast<size_t>(data.ranks);
  shape.offsets = {0};
  for (int from = 0; from < data.ranks; ++from) {
    for (size_t share : shares(data)) shape.offsets.push_back(shape.offsets.back() + share);
  }
}

// What was not sent stays in the residuals: with it, nothing may be missing.
Task<void> add_residuals(Comm& comm, BenchCase& data, Choice choice) {
  std::vector<float> kept(data.elements);
  const pattern::Range mine = collective::residual_range(choice.algorithm, comm.topology(), data.rank, data.elements);
  std::copy_n(data.selector->feedback.residual().begin(), mine.size(), kept.begin() + static_cast<long>(mine.begin));
  co_await collective::allreduce(comm, world(comm), std::span(kept));
  for (size_t e = 0; e < data.elements; ++e) data.out[e] += kept[e];
}

const BenchOperation kOperations[] = {
    {.name = "allreduce",
     .kind = OpKind::kAllreduce,
     .in_place = true,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           return collective::allreduce(comm, world(comm), std::span(data.out), {Reduction::kSum, choice});
         },
     .factor = [](const BenchCase& data, int n) { return 2 * shifted(data, n); },
     .expected = sum},
    {.name = "reduce_scatter",
     .kind = OpKind::kReduceScatter,
     .in_place = true,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           return collective::reduce_scatter(comm, world(comm), std::span(data.out), Reduction::kSum, {}, choice);
         },
     .factor = shifted,
     .expected = [](const BenchCase& data,
                    size_t e) { return owner(data, e) == data.rank ? sum(data, e) : value(data.rank, e); }},
    {.name = "allgather",
     .kind = OpKind::kAllgather,
     .in_place = true,
     .call = [](Comm& comm, BenchCase& data,
                Choice choice) { return collective::allgather(comm, world(comm), std::span(data.out), {}, choice); },
     .factor = shifted,
     .expected = [](const BenchCase& data, size_t e) { return value(owner(data, e), e); }},
    {.name = "broadcast",
     .kind = OpKind::kBroadcast,
     .in_place = true,
     .call = [](Comm& comm, BenchCase& data,
                Choice choice) { return collective::broadcast(comm, world(comm), 0, std::span(data.out), choice); },
     .factor = whole,
     .expected = [](const BenchCase&, size_t e) { return value(0, e); },
     .describe = at_root},
    {.name = "reduce",
     .kind = OpKind::kReduce,
     .in_place = true,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           return collective::reduce(comm, world(comm), 0, std::span(data.out), std::span(data.out), Reduction::kSum,
                                     choice);
         },
     .factor = whole,
     .expected = [](const BenchCase& data, size_t e) { return data.rank == 0 ? sum(data, e) : value(data.rank, e); },
     .describe = at_root},
    {.name = "gather",
     .kind = OpKind::kGather,
     .in_place = false,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           return collective::gather(comm, world(comm), 0, own_part(data, data.in), std::span(data.out), shares(data),
                                     choice);
         },
     .factor = shifted,
     .expected = [](const BenchCase& data, size_t e) { return value(data.rank == 0 ? owner(data, e) : data.rank, e); },
     .describe = at_root},
    {.name = "scatter",
     .kind = OpKind::kScatter,
     .in_place = false,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           return collective::scatter(comm, world(comm), 0, std::span(data.in), own_part(data, data.out), shares(data),
                                      choice);
         },
     .factor = shifted,
     .expected = [](const BenchCase& data, size_t e) { return value(owner(data, e) == data.rank ? 0 : data.rank, e); },
     .describe = at_root},
    {.name = "alltoall",
     .kind = OpKind::kAlltoall,
     .in_place = false,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           const std::vector<std::vector<size_t>> counts(static_cast<size_t>(data.ranks), shares(data));
           return collective::alltoall(comm, world(comm), std::span(data.in), std::span(data.out), counts, choice);
         },
     .factor = [](const BenchCase& data, int n) { return shifted(data, n) * data.ranks / n; },
     .expected =
         [](const BenchCase& data, size_t e) {
           const pattern::Range mine = data.part(data.rank);
           return value(static_cast<Rank>(e / mine.size()), mine.begin + e % mine.size());
         },
     .out_elements =
         [](const BenchCase& data) { return data.part(data.rank).size() * static_cast<size_t>(data.ranks); },
     .describe = describe_alltoall},
    {.name = "neighbor_exchange",
     .kind = OpKind::kNeighborExchange,
     .in_place = false,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           return collective::neighbor_exchange(comm, world(comm), std::span(data.in), std::span(data.out), ring(data),
                                                choice);
         },
     .factor = [](const BenchCase& data, int n) { return n > 1 ? std::min(data.ranks - 1.0, 2.0) : 0.0; },
     .expected = [](const BenchCase& data,
                    size_t e) { return value(neighbor(data.ranks, data.rank, e / data.elements), e % data.elements); },
     .out_elements = [](const BenchCase& data) { return neighbor_count(data) * data.elements; },
     .describe = [](const BenchCase& data, Shape& shape) { shape.graph = ring(data); }},
    {.name = "barrier",
     .kind = OpKind::kBarrier,
     .in_place = true,
     .call = [](Comm& comm, BenchCase&, Choice) { return collective::barrier(comm, world(comm)); },
     .factor = [](const BenchCase&, int) { return 0.0; },
     .expected = nullptr},  // it has no elements
    {.name = "sparse_allreduce",
     .kind = OpKind::kSparseAllreduce,
     .in_place = true,
     .call =
         [](Comm& comm, BenchCase& data, Choice choice) {
           const collective::SparseOptions options(data.density, DType::kFloat32, Reduction::kSum);
           return collective::sparse_allreduce(comm, world(comm), std::span(data.out), options, *data.selector, choice);
         },
     // Of one selection, with its indices: who knows less than one of another's can't have the sum.
     .factor = [](const BenchCase& data, int n) { return n > 1 ? 2 * data.density : 0.0; },
     .expected = sum,
     .describe = [](const BenchCase& data, Shape& shape) { shape.density = data.density; },
     .settle = add_residuals},
};

}  // namespace

const BenchOperation& find_bench_operation(const std::string& name) {
  std::string known;
  for (const BenchOperation& operation : kOperations) {
    if (operation.name == name) return operation;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", operation.name);
  }
  fail(ErrorCode::kInvalidArgument, "unknown operation '{}'; known are {}", name, known);
}

void fill(const BenchOperation& operation, const Choice& choice, const cluster::Topology& layout, BenchCase& data) {
  data.in.resize(operation.in_place ? 0 : data.elements);
  data.out.resize(operation.out_elements == nullptr ? data.elements : operation.out_elements(data));
  for (std::vector<float>* vector : {&data.in, &data.out}) {
    for (size_t e = 0; e < vector->size(); ++e) (*vector)[e] = value(data.rank, e);
  }
  if (operation.kind != OpKind::kSparseAllreduce) return;
  const size_t kept = collective::residual_range(choice.algorithm, layout, data.rank, data.elements).size();
  if (!data.selector || data.selector->feedback.residual().size() != kept) data.selector.emplace(kept);
  data.selector->feedback.set_residual(std::vector<float>(kept));
}

size_t wrong_elements(const BenchOperation& operation, const BenchCase& data) {
  size_t wrong = 0;
  for (size_t e = 0; e < data.out.size(); ++e) wrong += data.out[e] != operation.expected(data, e);
  return wrong;
}

}  // namespace virga::command
