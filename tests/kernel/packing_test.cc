#include "virga/kernel/packing.h"

#include <cmath>
#include <functional>
#include <limits>

#include "virga/base/error.h"

#include "kernel/isa_helper.h"

namespace virga::kernel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class Packing : public EveryIsa {};
INSTANTIATE_TEST_SUITE_P(Isa, Packing, kAllIsas, isa_name);

// Every size up to two of the largest groups, then the sizes of all kernels.
std::vector<size_t> sizes() {
  std::vector<size_t> all = kSizes;
  for (size_t n = 0; n < 260; ++n) all.push_back(n);
  return all;
}

std::vector<uint8_t> bytes(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> x(n);
  for (uint8_t& value : x) value = static_cast<uint8_t>(random());
  return x;
}

// The layout as packing.h states it, a bit at a time.
bool bit_at(const std::vector<uint8_t>& packed, size_t position) {
  return packed[position / 8] & (1 << (position % 8));
}
std::vector<uint8_t> from_bits(const std::vector<bool>& bits) {
  std::vector<uint8_t> packed((bits.size() + 7) / 8);
  for (size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) packed[i / 8] = static_cast<uint8_t>(packed[i / 8] + (1 << (i % 8)));
  }
  return packed;
}

TEST_P(Packing, CodesLieLeastSignificantBitFirst) {
  const IsaOverride isa(GetParam());
  for (int bits : {1, 2}) {
    for (size_t n : sizes()) {
      const std::vector<uint8_t> codes = bytes(n, n);  // with high bits that don't count
      std::vector<bool> plain;
      for (uint8_t code : codes) {
        for (int bit = 0; bit < bits; ++bit) plain.push_back(code >> bit & 1);
      }
      std::vector<uint8_t> packed(packed_bytes(n, bits), 0xff);  // what was there must not show
      pack_bits(packed, codes, bits);
      ASSERT_EQ(packed, from_bits(plain)) << n << " of " << bits << " bits";
    }
  }
}

TEST_P(Packing, CodesComeBackWhateverFollowsTheLast) {
  const IsaOverride isa(GetParam());
  for (int bits : {1, 2}) {
    for (size_t n : sizes()) {
      const std::vector<uint8_t> packed = bytes(packed_bytes(n, bits), n);
      std::vector<uint8_t> codes(n, 0xff), expected(n);
      unpack_bits(codes, packed, bits);
      for (size_t i = 0; i < n; ++i) {
        for (int bit = 0; bit < bits; ++bit) {
          const size_t position = i * static_cast<size_t>(bits) + static_cast<size_t>(bit);
          expected[i] = static_cast<uint8_t>(expected[i] | bit_at(packed, position) << bit);
        }
      }
      ASSERT_EQ(codes, expected) << n << " of " << bits << " bits";
    }
  }
}

TEST_P(Packing, SignsAreSignBitsOfEveryKindOfFloat) {
  const IsaOverride isa(GetParam());
  for (size_t n : sizes()) {
    const std::vector<float> x = any_bits(n, n);  // NaNs of both signs, zeros, infinities
    std::vector<bool> plain;
    for (uint32_t bits : bits_of(x)) plain.push_back(bits >> 31);
    std::vector<uint8_t> packed(packed_bytes(n, 1), 0xff);
    pack_signs(packed, x);
    ASSERT_EQ(packed, from_bits(plain)) << n;
  }
}

TEST_P(Packing, SignsBecomeMagnitudes) {
  const IsaOverride isa(GetParam());
  for (float magnitude : {0.0f, 0.3f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    for (size_t n : sizes()) {
      const std::vector<uint8_t> packed = bytes(packed_bytes(n, 1), n);
      std::vector<float> got(n), expected(n);
      unpack_signs(got, packed, magnitude);
      for (size_t i = 0; i < n; ++i) expected[i] = bit_at(packed, i) ? -magnitude : magnitude;
      ASSERT_EQ(bits_of(got), bits_of(expected)) << n;
    }
  }
}

// To the nearest integer, a half to the even one, from the definition: no rounding mode, no conversion instruction.
int nearest_even(float x) {
  const float below = std::floor(x), rest = x - below;  // exact: |x| is small
  const bool up = rest > 0.5f || (rest == 0.5f && std::fmod(below, 2.0f) != 0);
  return static_cast<int>(below) + up;
}

int8_t quantised(float x, float scale) {
  const volatile float steps = x / scale;
  if (std::isnan(steps)) return kInt8NaN;
  if (steps >= 127) return 127;
  return steps <= -127 ? int8_t{-127} : static_cast<int8_t>(nearest_even(steps));
}

TEST_P(Packing, Int8IsTheNearestCodeHeldWithinItsRange) {
  const IsaOverride isa(GetParam());
  for (float scale : {1.0f, 0.03f, 1e-40f, 3e38f}) {
    for (size_t n : sizes()) {
      for (const std::vector<float>& x : {any_bits(n, n), normals(n, n, 60 * scale)}) {
        std::vector<int8_t> got(n), expected(n);
        pack_int8(got, x, scale);
        for (size_t i = 0; i < n; ++i) expected[i] = quantised(x[i], scale);
        ASSERT_EQ(got, expected) << n << ", scale " << scale;
      }
    }
  }
}

TEST_P(Packing, Int8TiesGoToEvenAndWhatIsNotFiniteHasItsPlace) {
  const IsaOverride isa(GetParam());
  const std::vector<float> x = {0.5f,   1.5f,   -0.5f, -1.5f, 126.5f,        127.5f,         -126.5f, -127.5f,
                                128.5f, -1e30f, kInf,  -kInf, std::nanf(""), -std::nanf(""), -0.0f,   2.5f};
  std::vector<int8_t> codes(x.size());
  pack_int8(codes, x, 1.0f);
  EXPECT_EQ(codes, (std::vector<int8_t>{0, 2, 0, -2, 126, 127, -126, -127, 127, -127, 127, -127, -128, -128, 0, 2}));
}

TEST_P(Packing, EveryInt8HasItsValue) {
  const IsaOverride isa(GetParam());
  std::vector<int8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(static_cast<int>(i) - 128);
  for (float scale : {1.0f, 0.03f, 1e-40f, 3e38f}) {
    for (size_t skip = 0; skip < codes.size(); ++skip) {
      const std::span<const int8_t> src = std::span(codes).subspan(skip);
      std::vector<float> got(src.size()), expected(src.size());
      unpack_int8(got, src, scale);
      for (size_t i = 0; i < src.size(); ++i) expected[i] = static_cast<float>(src[i]) * scale;
      if (skip == 0) expected[0] = std::bit_cast<float>(0x7fc00000u);
      ASSERT_EQ(bits_of(got), bits_of(expected)) << skip << ", scale " << scale;
    }
  }
}

void expect_refused(const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
  }
}

TEST(PackingArguments, WrongSizesBitsAndScalesAreRefused) {
  std::vector<uint8_t> codes(9), one(1), two(2), three(3);
  std::vector<float> floats(9);
  std::vector<int8_t> eights(8), nines(9);
  expect_refused([&] { pack_bits(one, codes, 1); });
  expect_refused([&] { pack_bits(three, codes, 1); });
  expect_refused([&] { pack_bits(two, codes, 2); });
  expect_refused([&] { unpack_bits(codes, three, 1); });
  expect_refused([&] { unpack_bits(codes, two, 2); });
  for (int bits : {-1, 0, 3, 4, 8}) {
    expect_refused([&] { pack_bits(three, codes, bits); });
    expect_refused([&] { unpack_bits(codes, three, bits); });
  }
  expect_refused([&] { pack_signs(one, floats); });
  expect_refused([&] { unpack_signs(floats, three, 1); });
  expect_refused([&] { pack_int8(eights, floats, 1); });
  expect_refused([&] { unpack_int8(floats, eights, 1); });
  for (float bad : {-1.0f, kInf, std::nanf("")}) {
    expect_refused([&] { unpack_signs(floats, two, bad); });
    expect_refused([&] { pack_int8(nines, floats, bad); });
    expect_refused([&] { unpack_int8(floats, nines, bad); });
  }
  expect_refused([&] { pack_int8(nines, floats, 0); });
  expect_refused([&] { unpack_int8(floats, nines, 0); });
}

}  // namespace
}  // namespace virga::kernel
