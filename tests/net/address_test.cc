#include "virga/net/ucx/address.h"

#include <gtest/gtest.h>

#include "virga/base/error.h"

namespace virga::net::ucx {
namespace {

const Address kAddress{3, std::string("inside\0bytes", 12), std::string(300, 'b')};

bool refused(std::string_view blob) {
  try {
    decode_address(blob);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kCorrupt;
  }
  return false;
}

TEST(UcxAddress, SurvivesItsWay) {
  const Address copy = decode_address(encode(kAddress));
  EXPECT_EQ(copy.rank, 3);
  EXPECT_EQ(copy.inside_host, kAddress.inside_host);
  EXPECT_EQ(copy.between_hosts, kAddress.between_hosts);
}

TEST(UcxAddress, IsRefusedWhenCutShortAnywhere) {
  const std::string blob = encode(kAddress);
  for (size_t size = 0; size < blob.size(); ++size) EXPECT_TRUE(refused(blob.substr(0, size))) << size;
  EXPECT_TRUE(refused(blob + "x"));
}

TEST(UcxAddress, IsRefusedWhenAnyBitIsWrong) {
  const std::string blob = encode(kAddress);
  for (size_t i = 0; i < blob.size() * 8; ++i) {
    std::string wrong = blob;
    wrong[i / 8] = static_cast<char>(wrong[i / 8] ^ (1 << (i % 8)));
    EXPECT_TRUE(refused(wrong)) << "bit " << i;
  }
}

}  // namespace
}  // namespace virga::net::ucx
