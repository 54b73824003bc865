#pragma once

#include <cstddef>

namespace virga::codec {

// How many of n elements a density keeps: round(density * n), at least 1 and at most n; 0 if n is
// 0. kInvalidArgument unless 0 < density <= 1.
size_t k_for_density(size_t n, double density);

}  // namespace virga::codec
