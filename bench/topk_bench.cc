// Exact top-k in units of one streaming read of the same array and error feedback in units of a kernel that reads two
// arrays and writes one (e += g), on one core, beside MSTopK with N = 30 and std::nth_element. In every round each
// contestant runs right after its unit, so that a machine whose speed drifts slows both, and the unit after one more of
// its kind, so that both find the same in the cache, also what has yet to be written back. The figures are medians over
// the rounds.
//
//   topk_bench [elements] [rounds]        default: 25600000 15
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <time.h>
#include <vector>

#include "virga/base/random.h"
#include "virga/codec/density.h"
#include "virga/codec/error_feedback.h"
#include "virga/kernel/elementwise.h"
#include "virga/kernel/isa.h"
#include "virga/kernel/mstopk.h"
#include "virga/kernel/topk.h"

namespace virga {
namespace {

volatile uint64_t sink;  // results go here, so that no work is optimised away

// The best plain read there is: four streams side by side, which keep more of the prefetchers busy than one, are
// or-ed, nothing else.
typedef uint32_t Vector __attribute__((vector_size(32), aligned(4), may_alias));

#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
void read_all(const std::vector<float>& x) {
  Vector any[4] = {};
  const size_t run = x.size() / 4;
  for (size_t i = 0; i + 8 <= run; i += 8) {
    for (size_t j = 0; j < 4; ++j) any[j] |= *reinterpret_cast<const Vector*>(x.data() + j * run + i);
  }
  const Vector all = any[0] | any[1] | any[2] | any[3];
  for (int lane = 0; lane < 8; ++lane) sink = sink + all[lane];
}

// Of this thread's CPU time, so that the time slices of other programs don't count. Nothing here
// ever waits.
double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& work) {
  const double start = cpu_seconds();
  work();
  return cpu_seconds() - start;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

std::vector<float> normals(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(random.normal());
  return x;
}

struct Unit {
  std::string name;
  double bytes;
  std::function<void()> work;
  std::vector<double> seconds = {};
};

struct Contestant {
  std::string name;
  Unit& unit;
  double bar;  // in units; 0 where there is none
  std::function<void()> work;
  std::vector<double> seconds = {}, ratios = {};
};

void race(std::vector<Contestant>& contestants, int rounds) {
  for (Contestant& contestant : contestants) contestant.work();  // the first call allocates
  for (int round = 0; round < rounds; ++round) {
    for (Contestant& contestant : contestants) {
      contestant.unit.work();
      contestant.unit.seconds.push_back(seconds_of(contestant.unit.work));
      contestant.seconds.push_back(seconds_of(contestant.work));
      contestant.ratios.push_back(contestant.seconds.back() / contestant.unit.seconds.back());
    }
  }
}

void report(const std::vector<Unit*>& units, const std::vector<Contestant>& contestants, size_t n) {
  nlohmann::json json = {{"benchmark", "topk"}, {"elements", n}, {"isa", kernel::to_string(kernel::active_isa())}};
  fmt::print("{} floats, {}\n", n, kernel::to_string(kernel::active_isa()));
  for (const Unit* unit : units) {
    const double seconds = median(unit->seconds);
    fmt::print("one {}: {:.2f} ms ({:.1f} GB/s)\n", unit->name, 1e3 * seconds, 1e-9 * unit->bytes / seconds);
    json["units"].push_back({{"name", unit->name}, {"seconds", seconds}});
  }
  fmt::print("{:<44}{:>10}{:>20}{:>6}\n", "", "ms", "units", "bar");
  for (const Contestant& contestant : contestants) {
    const double seconds = median(contestant.seconds), ratio = median(contestant.ratios), bar = contestant.bar;
    fmt::print("{:<44}{:>10.2f}{:>8.2f} {:<11}{:>6}{}\n", contestant.name, 1e3 * seconds, ratio,
               contestant.unit.name + "s", bar > 0 ? fmt::format("{:.1f}", bar) : "",
               bar == 0       ? ""
               : ratio <= bar ? "  met"
                              : "  MISSED");
    json["contestants"].push_back({{"name", contestant.name},
                                   {"seconds", seconds},
                                   {"unit", contestant.unit.name},
                                   {"units", ratio},
                                   {"bar", bar}});
  }
  fmt::print("{}\n", json.dump());
}

// Magnitudes copied, then partitioned: the k-th magnitude alone, without gathering anything.
void nth_element(const std::vector<float>& x, size_t k, std::vector<float>& scratch) {
  std::transform(x.begin(), x.end(), scratch.begin(), [](float v) { return std::fabs(v); });
  const auto kth = scratch.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(scratch.begin(), kth, scratch.end(), std::greater<>());
  sink = sink + static_cast<uint64_t>(*kth);
}

void run(size_t n, int rounds) {
  const std::vector<float> x = normals(n, 1);
  const size_t percent = codec::k_for_density(n, 0.01), permille = codec::k_for_density(n, 0.001);
  std::vector<float> residual_percent(n), residual_permille(n), residual_half(n), sum(n), scratch(n);
  kernel::TopK topk;
  kernel::MsTopK mstopk;
  codec::ErrorFeedback feedback(n);
  const codec::SparseFormat format(n, percent, DType::kFloat16);
  std::vector<std::byte> payload(format.payload_bytes());
  const auto fused = [&](std::vector<float>& residual, size_t k, DType dtype) {
    sink = sink + topk.error_feedback_select(x, residual, 0.25f, k, dtype).indices[0];
  };
  Unit read = {"read", 4.0 * static_cast<double>(n), [&] { read_all(x); }};
  Unit addition = {"addition", 12.0 * static_cast<double>(n), [&] { kernel::add(sum, x); }};
  std::vector<Contestant> contestants = {
      {"exact top-k, 1 %", read, 3.5, [&] { sink = sink + topk.select(x, percent).indices[0]; }},
      {"exact top-k, 0.1 %", read, 2.5, [&] { sink = sink + topk.select(x, permille).indices[0]; }},
      {"with error feedback, 1 %, fp32", addition, 1.7, [&] { fused(residual_percent, percent, DType::kFloat32); }},
      {"with error feedback, 0.1 %, fp32", addition, 1.7, [&] { fused(residual_permille, permille, DType::kFloat32); }},
      {"with error feedback, 1 %, fp16", addition, 1.7, [&] { fused(residual_half, percent, DType::kFloat16); }},
      {"ErrorFeedback::compress, 1 %, fp16, packed", addition, 0,
       [&] { feedback.compress(x, 0.25f, format, payload); }},
      {"SparseFormat::decode_add, 1 %, fp16", addition, 0, [&] { format.decode_add(payload, sum); }},
      {"MSTopK, N = 30, 1 %", read, 0, [&] { sink = sink + mstopk.select(x, percent, 30, 1).indices[0]; }},
      {"std::nth_element, 1 %", read, 0, [&] { nth_element(x, percent, scratch); }},
  };
  race(contestants, rounds);
  report({&read, &addition}, contestants, n);
}

}  // namespace
}  // namespace virga

int main(int argc, char** argv) {
  const size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 25600000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (n < 1000 || rounds < 1) {
    fmt::print(stderr, "usage: topk_bench [elements, at least 1000] [rounds, at least 1]\n");
    return 2;
  }
  virga::run(n, rounds);
}
