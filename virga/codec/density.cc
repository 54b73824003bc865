#include "virga/codec/density.h"

#include <algorithm>
#include <cmath>

#include "virga/base/error.h"

namespace virga::codec {

size_t k_for_density(size_t n, double density) {
  require(density > 0 && density <= 1, "density {} is outside (0, 1]: it is the share of elements that is sent",
          density);
  if (n == 0) return 0;
  const double kept = std::round(density * static_cast<double>(n));
  if (kept >= static_cast<double>(n)) return n;
  return std::max<size_t>(1, static_cast<size_t>(kept));
}

}  // namespace virga::codec
