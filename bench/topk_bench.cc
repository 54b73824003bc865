// Exact top-k and error feedback in units of one streaming read of the same array, on one core,
// beside MSTopK with N = 30 and std::nth_element. In every round each contestant runs right after a
// read of its own, so that a machine whose speed drifts slows both; the figures are medians over
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

// The best plain read there is: four independent vectors are or-ed, nothing else.
typedef uint32_t Vector __attribute__((vector_size(32), aligned(4), may_alias));

#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
void read_all(const std::vector<float>& x) {
  Vector any[4] = {};
  for (size_t i = 0; i + 32 <= x.size(); i += 32) {
    const Vector* at = reinterpret_cast<const Vector*>(x.data() + i);
    for (int j = 0; j < 4; ++j) any[j] |= at[j];
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

struct Contestant {
  std::string name;
  double bar;  // in reads; 0 where there is none
  std::function<void()> work;
  std::vector<double> seconds = {}, reads = {};
};

void race(std::vector<Contestant>& contestants, const std::vector<float>& x, int rounds,
          std::vector<double>& read_seconds) {
  for (Contestant& contestant : contestants) contestant.work();  // the first call allocates
  for (int round = 0; round < rounds; ++round) {
    for (Contestant& contestant : contestants) {
      const double read = seconds_of([&] { read_all(x); });
      read_seconds.push_back(read);
      contestant.seconds.push_back(seconds_of(contestant.work));
      contestant.reads.push_back(contestant.seconds.back() / read);
    }
  }
}

void report(const std::vector<Contestant>& contestants, size_t n, double read_seconds) {
  nlohmann::json json = {{"benchmark", "topk"},
                         {"elements", n},
                         {"isa", kernel::to_string(kernel::active_isa())},
                         {"read_seconds", read_seconds}};
  const double ours = median(contestants.front().reads);
  fmt::print("{} floats, {}, one read {:.2f} ms ({:.1f} GB/s)\n", n, kernel::to_string(kernel::active_isa()),
             1e3 * read_seconds, 4e-9 * static_cast<double>(n) / read_seconds);
  fmt::print("{:<44}{:>10}{:>9}{:>8}{:>16}\n", "", "ms", "reads", "bar", "/ exact 1 %");
  for (const Contestant& contestant : contestants) {
    const double reads = median(contestant.reads);
    fmt::print("{:<44}{:>10.2f}{:>9.2f}{:>8}{:>16.2f}\n", contestant.name, 1e3 * median(contestant.seconds), reads,
               contestant.bar > 0 ? fmt::format("{:.1f}", contestant.bar) : "", reads / ours);
    json["contestants"].push_back({{"name", contestant.name},
                                   {"seconds", median(contestant.seconds)},
                                   {"reads", reads},
                                   {"bar_reads", contestant.bar}});
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
  std::vector<Contestant> contestants = {
      {"exact top-k, 1 %", 4.5, [&] { sink = sink + topk.select(x, percent).indices[0]; }},
      {"exact top-k, 0.1 %", 3, [&] { sink = sink + topk.select(x, permille).indices[0]; }},
      {"with error feedback, 1 %, fp32", 8, [&] { fused(residual_percent, percent, DType::kFloat32); }},
      {"with error feedback, 0.1 %, fp32", 8, [&] { fused(residual_permille, permille, DType::kFloat32); }},
      {"with error feedback, 1 %, fp16", 8, [&] { fused(residual_half, percent, DType::kFloat16); }},
      {"e += g alone", 0, [&] { kernel::add(sum, x); }},
      {"ErrorFeedback::compress, 1 %, fp16, packed", 0, [&] { feedback.compress(x, 0.25f, format, payload); }},
      {"SparseFormat::decode_add, 1 %, fp16", 0, [&] { format.decode_add(payload, sum); }},
      {"MSTopK, N = 30, 1 %", 0, [&] { sink = sink + mstopk.select(x, percent, 30, 1).indices[0]; }},
      {"std::nth_element, 1 %", 0, [&] { nth_element(x, percent, scratch); }},
  };
  std::vector<double> read_seconds;
  race(contestants, x, rounds, read_seconds);
  report(contestants, n, median(read_seconds));
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
