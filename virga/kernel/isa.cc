#include "virga/kernel/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>

#include "virga/base/error.h"

namespace virga::kernel {
namespace {

std::atomic<Isa>& active() {
  static std::atomic<Isa> isa = best_isa();
  return isa;
}

#if defined(__x86_64__)
// clang-14's __builtin_cpu_supports does not know f16c.
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool is_supported(Isa isa) {
  if (isa == Isa::kScalar) return true;
#if defined(__x86_64__)
  const bool avx2 =
      __builtin_cpu_supports("avx2") && has_f16c() && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (isa == Isa::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

Isa best_isa() {
  if (is_supported(Isa::kAvx512)) return Isa::kAvx512;
  return is_supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kScalar;
}

Isa active_isa() { return active().load(std::memory_order_relaxed); }

IsaOverride::IsaOverride(Isa isa) : previous_(active_isa()) {
  require(is_supported(isa), "this CPU has no {}", to_string(isa));
  active().store(isa, std::memory_order_relaxed);
}

IsaOverride::~IsaOverride() { active().store(previous_, std::memory_order_relaxed); }

}  // namespace virga::kernel
