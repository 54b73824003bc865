#include "virga/net/header.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "virga/base/error.h"

namespace virga::net {
namespace {

using ::testing::HasSubstr;

// The wire format, byte by byte.
TEST(Header, LiesOnTheWireAsTheDocumentSays) {
  Header header;
  header.kind = OpKind::kSparseAllreduce;
  header.dtype = DType::kFloat32;
  header.epoch = 0x0102030405060708;
  header.operation = 2;
  header.elements = 3;
  header.options = 4;
  header.source = 5;
  header.root = -1;
  header.group = 6;
  header.wire = DType::kFloat16;
  header.reduction = Reduction::kMax;
  header.algorithm = 7;
  header.chunk = 8;
  unsigned char bytes[64];
  std::memcpy(bytes, &header, sizeof bytes);
  EXPECT_EQ(std::memcmp(bytes, "VRGA\x02\x00\x07", 7), 0);
  EXPECT_EQ(bytes[7], static_cast<unsigned char>(DType::kFloat32));
  EXPECT_EQ(std::memcmp(bytes + 8, "\x08\x07\x06\x05\x04\x03\x02\x01", 8), 0);
  const std::pair<int, int> ones[] = {{16, 2}, {24, 3}, {32, 4}, {40, 5}, {44, 255},
                                      {48, 6}, {52, 2}, {53, 3}, {54, 7}, {56, 8}};
  for (const auto& [offset, value] : ones) EXPECT_EQ(bytes[offset], value) << offset;
}

ErrorCode refusal(const std::function<void(Header&)>& spoil) {
  Header header;
  spoil(header);
  try {
    validate(header, 4);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "accepted";
  return ErrorCode::kNonFinite;
}

TEST(Header, IsRefusedUnlessItIsOurs) {
  EXPECT_EQ(refusal([](Header& h) { h.magic ^= 1; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.version = 1; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.kind = static_cast<OpKind>(0); }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.kind = static_cast<OpKind>(200); }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.dtype = static_cast<DType>(99); }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.wire = static_cast<DType>(99); }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.reduction = static_cast<Reduction>(4); }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.source = 4; }), ErrorCode::kCorrupt);
  EXPECT_EQ(refusal([](Header& h) { h.source = -1; }), ErrorCode::kCorrupt);
  EXPECT_NO_THROW(validate(Header(), 1));
}

TEST(Header, DifferenceNamesEveryFieldWithBothValues) {
  Header here, there;
  EXPECT_EQ(difference(here, there), "");
  there.source = 9;
  there.chunk = 9;
  EXPECT_EQ(difference(here, there), "");  // the address
  there.root = 3;
  there.wire = DType::kFloat16;
  EXPECT_EQ(difference(here, there), "root -1 here, 3 there; wire dtype byte here, fp16 there");
  there.reduction = Reduction::kMin;
  EXPECT_THAT(difference(here, there), HasSubstr("reduction sum here, min there"));
  here.algorithm = 2;
  there.algorithm = 999;
  EXPECT_THAT(difference(here, there), HasSubstr("algorithm chain here, number 999 there"));
  there.options = 31;
  EXPECT_THAT(difference(here, there), HasSubstr("options (sizes of parts, density, slices, shape, or which "
                                                 "bucket of which replica) 0x0 here, 0x1f there"));
  there.kind = OpKind::kAllreduce;
  EXPECT_THAT(difference(here, there), HasSubstr("operation barrier here, allreduce there"));
}

}  // namespace
}  // namespace virga::net
