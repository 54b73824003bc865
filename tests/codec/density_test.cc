#include "virga/codec/density.h"

#include <cmath>
#include <gtest/gtest.h>

#include "virga/base/error.h"

namespace virga::codec {
namespace {

TEST(Density, RoundsAndStaysInRange) {
  EXPECT_EQ(k_for_density(0, 0.01), 0u);
  EXPECT_EQ(k_for_density(1, 0.01), 1u);
  EXPECT_EQ(k_for_density(49, 0.01), 1u);
  EXPECT_EQ(k_for_density(150, 0.01), 2u);  // 1.5 rounds up
  EXPECT_EQ(k_for_density(65537, 0.01), 655u);
  EXPECT_EQ(k_for_density(65537, 1.0), 65537u);
  EXPECT_EQ(k_for_density(65537, std::nextafter(1.0, 0.0)), 65537u);
  EXPECT_EQ(k_for_density(10, 1e-300), 1u);
  EXPECT_EQ(k_for_density(size_t{1} << 40, 0.5), size_t{1} << 39);
  EXPECT_EQ(k_for_density((size_t{1} << 60) + 1, 1.0), (size_t{1} << 60) + 1);
}

TEST(Density, OutsideZeroToOneIsRefused) {
  for (double density : {0.0, -0.01, 1.0001, std::nan(""), static_cast<double>(INFINITY)}) {
    EXPECT_THROW(k_for_density(100, density), Error) << density;
    EXPECT_THROW(k_for_density(0, density), Error) << density;
  }
}

}  // namespace
}  // namespace virga::codec
