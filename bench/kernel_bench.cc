// Kernels that read and write every element once, in bytes a second, beside the streaming rate of this machine: a plain
// read and a triad (a = b + c * s) over arrays of the same size, measured in the same run. Repetitions of all are
// interleaved, figures are medians of the thread's CPU time. Bytes are those that a kernel must read and write.
//
//   kernel_bench [--benchmark_filter=...]        the last line is a JSON object
#include <algorithm>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "virga/base/random.h"
#include "virga/kernel/chunk_topk.h"
#include "virga/kernel/elementwise.h"
#include "virga/kernel/isa.h"
#include "virga/kernel/packing.h"
#include "virga/kernel/reduce.h"

namespace virga::kernel {
namespace {

constexpr size_t kElements = 12'800'000;  // 51 MB of fp32, past any cache of a core
constexpr size_t kMany = 4 * kElements;   // where an element is a byte, or few are touched: past any cache, too
constexpr double kBar = 0.85;             // of the triad's rate

std::vector<std::byte> zeros(DType dtype) { return std::vector<std::byte>(kElements * size_of(dtype)); }

template <class T>
std::span<T> as(std::vector<std::byte>& bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void measure(benchmark::State& state, size_t bytes, const std::function<void()>& kernel) {
  kernel();  // pages are there, frequencies are up
  for (auto _ : state) {
    kernel();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

#if defined(__x86_64__)
__attribute__((target("avx2"), optimize("O3")))
#endif
void triad(float* a, const float* b, const float* c, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = b[i] + c[i] * 3.0f;
}

void bench_read(benchmark::State& state) {
  auto x = zeros(DType::kFloat32);
  bool finite = true;
  measure(state, x.size(), [&] { finite &= all_finite(as<float>(x)); });
  benchmark::DoNotOptimize(finite);
}

void bench_triad(benchmark::State& state) {
  auto a = zeros(DType::kFloat32), b = a, c = a;
  measure(state, 3 * a.size(),
          [&] { triad(as<float>(a).data(), as<float>(b).data(), as<float>(c).data(), kElements); });
}

void bench_reduce(benchmark::State& state, ReduceOp op, DType dtype) {
  auto dst = zeros(dtype), src = dst;
  measure(state, 3 * dst.size(), [&] { reduce(op, dtype, dst, src); });
}

void bench_reduce_many(benchmark::State& state, DType dtype, size_t count) {
  std::vector<std::vector<std::byte>> inputs(count, zeros(dtype));
  const std::vector<std::span<const std::byte>> spans(inputs.begin(), inputs.end());
  measure(state, (count + 1) * inputs[0].size(), [&] { reduce(ReduceOp::kSum, dtype, inputs[0], spans); });
}

using Pack = void (*)(std::span<uint16_t>, std::span<const float>, float);
using Unpack = void (*)(std::span<float>, std::span<const uint16_t>);

void bench_pack(benchmark::State& state, Pack pack) {
  auto wide = zeros(DType::kFloat32), narrow = zeros(DType::kFloat16);
  measure(state, wide.size() + narrow.size(), [&] { pack(as<uint16_t>(narrow), as<float>(wide), 1.0f); });
}

void bench_unpack(benchmark::State& state, Unpack unpack) {
  auto wide = zeros(DType::kFloat32), narrow = zeros(DType::kFloat16);
  measure(state, wide.size() + narrow.size(), [&] { unpack(as<float>(wide), as<uint16_t>(narrow)); });
}

void bench_add_half(benchmark::State& state, Unpack add) {
  auto wide = zeros(DType::kFloat32), narrow = zeros(DType::kFloat16);
  measure(state, 2 * wide.size() + narrow.size(), [&] { add(as<float>(wide), as<uint16_t>(narrow)); });
}

void bench_scale(benchmark::State& state) {
  auto x = zeros(DType::kFloat32);
  measure(state, 2 * x.size(), [&] { scale(as<float>(x), 0.5f); });
}

void bench_pack_bits(benchmark::State& state, int bits) {
  std::vector<uint8_t> codes(kMany), packed(packed_bytes(kMany, bits));
  measure(state, codes.size() + packed.size(), [&] { pack_bits(packed, codes, bits); });
}

void bench_unpack_bits(benchmark::State& state, int bits) {
  std::vector<uint8_t> codes(kMany), packed(packed_bytes(kMany, bits));
  measure(state, codes.size() + packed.size(), [&] { unpack_bits(codes, packed, bits); });
}

void bench_pack_signs(benchmark::State& state) {
  auto wide = zeros(DType::kFloat32);
  std::vector<uint8_t> packed(packed_bytes(kElements, 1));
  measure(state, wide.size() + packed.size(), [&] { pack_signs(packed, as<float>(wide)); });
}

void bench_unpack_signs(benchmark::State& state) {
  auto wide = zeros(DType::kFloat32);
  std::vector<uint8_t> packed(packed_bytes(kElements, 1));
  measure(state, wide.size() + packed.size(), [&] { unpack_signs(as<float>(wide), packed, 0.5f); });
}

void bench_pack_int8(benchmark::State& state) {
  auto wide = zeros(DType::kFloat32);
  std::vector<int8_t> codes(kElements);
  measure(state, wide.size() + codes.size(), [&] { pack_int8(codes, as<float>(wide), 0.1f); });
}

void bench_unpack_int8(benchmark::State& state) {
  auto wide = zeros(DType::kFloat32);
  std::vector<int8_t> codes(kElements);
  measure(state, wide.size() + codes.size(), [&] { unpack_int8(as<float>(wide), codes, 0.1f); });
}

// Normal values, as a gradient's are: zeros would all tie.
std::vector<float> normals() {
  std::vector<float> x(kElements);
  Random random(1);
  for (float& value : x) value = static_cast<float>(random.normal());
  return x;
}

void bench_chunk_topk(benchmark::State& state, size_t chunk, size_t k) {
  const std::vector<float> x = normals();
  ChunkTopK topk;
  const size_t results = chunk_topk_count(x.size(), chunk, k) * (sizeof(uint32_t) + sizeof(float));
  measure(state, x.size() * sizeof(float) + results, [&] { topk.select(x, chunk, k); });
}

// Ascending, one in 64 or so: a line of the cache holds a selected value or two.
std::vector<uint32_t> some_indices() {
  std::vector<uint32_t> indices;
  Random random(1);
  for (size_t i = random.below(127); i < kMany; i += 1 + random.below(127)) {
    indices.push_back(static_cast<uint32_t>(i));
  }
  return indices;
}

// What is read of the whole array are the lines that hold a selected value: nearly one each.
constexpr size_t kLine = 64;

// The same share of the lines at even distances, without an index to follow: what memory itself gives so.
void bench_read_lines(benchmark::State& state) {
  const std::vector<uint32_t> wide(kMany);
  constexpr size_t kStep = 64;
  uint32_t any = 0;
  measure(state, kMany / kStep * kLine, [&] {
    for (size_t i = 0; i < kMany; i += kStep) any |= wide[i];
  });
  benchmark::DoNotOptimize(any);
}

void bench_gather(benchmark::State& state) {
  std::vector<float> wide(kMany);
  const std::vector<uint32_t> indices = some_indices();
  std::vector<float> values(indices.size());
  measure(state, indices.size() * (kLine + sizeof(uint32_t) + sizeof(float)), [&] { gather(values, wide, indices); });
}

void bench_scatter_add(benchmark::State& state) {
  std::vector<float> wide(kMany);
  const std::vector<uint32_t> indices = some_indices();
  const std::vector<float> values(indices.size());
  measure(state, indices.size() * (2 * kLine + sizeof(uint32_t) + sizeof(float)),
          [&] { scatter_add(wide, indices, values); });
}

std::vector<std::string> kernel_names;  // in the order of the table

void add_all() {
  const auto add = [](const std::string& name, auto... arguments) {
    kernel_names.push_back(name);
    benchmark::RegisterBenchmark(name.c_str(), arguments...)->Repetitions(5)->ReportAggregatesOnly();
  };
  add("read", bench_read);
  add("triad", bench_triad);
  for (DType dtype :
       {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kFloat16, DType::kBFloat16}) {
    add(fmt::format("reduce sum {}", to_string(dtype)), bench_reduce, ReduceOp::kSum, dtype);
  }
  add("reduce max fp32", bench_reduce, ReduceOp::kMax, DType::kFloat32);
  add("reduce sum fp32, 4 inputs", bench_reduce_many, DType::kFloat32, 4);
  add("reduce sum fp16, 4 inputs", bench_reduce_many, DType::kFloat16, 4);
  add("fp32 to fp16", bench_pack, pack_half);
  add("fp32 to bf16", bench_pack, pack_bfloat16);
  add("fp16 to fp32", bench_unpack, unpack_half);
  add("bf16 to fp32", bench_unpack, unpack_bfloat16);
  add("fp32 += fp16", bench_add_half, add_half);
  add("fp32 += bf16", bench_add_half, add_bfloat16);
  add("scale fp32", bench_scale);
  add("fp32 to int8", bench_pack_int8);
  add("int8 to fp32", bench_unpack_int8);
  add("codes to 2 bits", bench_pack_bits, 2);
  add("2 bits to codes", bench_unpack_bits, 2);
  add("codes to 1 bit", bench_pack_bits, 1);
  add("1 bit to codes", bench_unpack_bits, 1);
  add("signs of fp32 to 1 bit", bench_pack_signs);
  add("1 bit to +-fp32", bench_unpack_signs);
  add("top 64 of every 4096", bench_chunk_topk, 4096, 64);
  add("read, 1 line of 4", bench_read_lines);
  add("gather, 1 of 64", bench_gather);
  add("scatter_add, 1 of 64", bench_scatter_add);
}

// Keeps the medians instead of printing what came.
class Medians : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.aggregate_name != "median") continue;
      rates_[run.run_name.function_name] = run.counters.at("bytes_per_second");
    }
  }

  void print() const {
    const double triad = rates_.count("triad") ? rates_.at("triad") : 0;
    nlohmann::json rows = nlohmann::json::array();
    fmt::print("{:28}{:>10}{:>12}{:>8}\n", fmt::format("{} on one core", to_string(active_isa())), "GB/s", "of triad",
               "bar");
    for (const std::string& name : kernel_names) {
      if (!rates_.count(name)) continue;
      const double ratio = triad > 0 ? rates_.at(name) / triad : 0;
      const bool judged = name != "triad" && !name.starts_with("read");
      fmt::print("{:28}{:10.2f}{:12.2f}{:>8}\n", name, rates_.at(name) / 1e9, ratio,
                 !judged         ? "-"
                 : ratio >= kBar ? "met"
                                 : "MISSED");
      rows.push_back({{"kernel", name}, {"bytes_per_second", rates_.at(name)}, {"of_triad", ratio}});
    }
    fmt::print("{}\n", nlohmann::json{{"benchmark", "kernels"}, {"bar", kBar}, {"rows", rows}}.dump());
  }

 private:
  std::map<std::string, double> rates_;
};

}  // namespace
}  // namespace virga::kernel

int main(int count, char** arguments) {
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  std::vector<char*> all(arguments, arguments + count);
  all.push_back(interleave.data());
  int total = static_cast<int>(all.size());
  virga::kernel::add_all();
  benchmark::Initialize(&total, all.data());
  virga::kernel::Medians medians;
  benchmark::RunSpecifiedBenchmarks(&medians);
  medians.print();
}
