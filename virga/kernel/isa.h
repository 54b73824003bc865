#pragma once

#include <string_view>

// Which instruction set the kernels of this process use. Every set gives the same bits, so the
// choice is one of speed only; it is made once, from what the CPU offers.
namespace virga::kernel {

enum class Isa { kScalar, kAvx2, kAvx512 };

std::string_view to_string(Isa isa);

// True if this CPU (and operating system) can run `isa`. kAvx2 includes F16C, BMI1 and BMI2;
// kAvx512 means F, BW, VL, DQ.
bool is_supported(Isa isa);

// The fastest set that this CPU supports.
Isa best_isa();

// The set in use: best_isa() unless an IsaOverride lives.
Isa active_isa();

// Forces a set for its lifetime, for tests and benchmarks. Throws kInvalidArgument if the CPU lacks
// it. Not for use while another thread runs kernels.
class IsaOverride {
 public:
  explicit IsaOverride(Isa isa);
  ~IsaOverride();
  IsaOverride(const IsaOverride&) = delete;
  IsaOverride& operator=(const IsaOverride&) = delete;

 private:
  Isa previous_;
};

}  // namespace virga::kernel
