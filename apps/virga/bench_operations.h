#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "virga/collective/sparse_allreduce/sparse_allreduce.h"

// What `virga bench collective` knows of each operation.
namespace virga::command {

// One rank's part in one case, and the memory that it works on.
struct BenchCase {
  int ranks;
  Rank rank;
  size_t elements;  // fp32: of the vector, of all parts together, or of what each rank gives
  double density;   // sparse: kept / all
  std::vector<float> in{}, out{};
  std::optional<collective::Selector> selector{};  // sparse

  pattern::Range part(int member) const { return pattern::shard(elements, ranks, member); }
};

struct BenchOperation {
  const char* name;
  collective::OpKind kind;
  bool in_place;  // in `out`
  Task<void> (*call)(cluster::Comm& comm, BenchCase& data, collective::Choice choice);
  // How many times a vector's bytes the busiest must send or receive at least: of n hosts, on which the ranks are, or
  // of n ranks.
  double (*factor)(const BenchCase& data, int n);
  // Element e of `out` afterwards.
  float (*expected)(const BenchCase& data, size_t e);
  size_t (*out_elements)(const BenchCase& data) = nullptr;                      // nullptr: as many as `elements`
  void (*describe)(const BenchCase& data, collective::Shape& shape) = nullptr;  // what its cost depends on, besides
  // Makes of `out` what can be judged, where the result alone can't.
  Task<void> (*settle)(cluster::Comm& comm, BenchCase& data, collective::Choice choice) = nullptr;
};

// Throws kInvalidArgument for an unknown name; known ones are listed.
const BenchOperation& find_bench_operation(const std::string& name);

// Fills a rank's vectors as each repetition finds them.
void fill(const BenchOperation& operation, const collective::Choice& choice, const cluster::Topology& layout,
          BenchCase& data);
// How many elements of the result are not what they should be.
size_t wrong_elements(const BenchOperation& operation, const BenchCase& data);

}  // namespace virga::command
