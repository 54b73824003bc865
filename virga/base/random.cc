#include "virga/base/random.h"

#include <cmath>
#include <numbers>

#include "virga/base/error.h"

namespace virga {

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t counter) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * x[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

uint64_t Random::operator()() {
  if (left_ == 0) {
    block_ = philox(seed_, stream_, counter_++);
    left_ = 2;
  }
  const int word = 2 * (2 - left_--);
  return uint64_t{block_[word]} | uint64_t{block_[word + 1]} << 32;
}

uint64_t Random::below(uint64_t bound) {
  require(bound > 0, "Random::below needs a bound above 0");
  const uint64_t limit = max() - max() % bound;  // draws at or past it would favour small results
  uint64_t draw = (*this)();
  while (draw >= limit) draw = (*this)();
  return draw % bound;
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace virga
