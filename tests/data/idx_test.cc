#include "virga/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "virga/base/error.h"

#include "data/idx_files.h"

namespace virga::data {
namespace {

using testing::HasSubstr;

class IdxTest : public FolderTest {
 protected:
  void expect_error(ErrorCode code, const std::string& part, int dimensions = 3) {
    try {
      read_idx(path(), dimensions);
      FAIL() << "no error, expected: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.what(), HasSubstr(part));
      EXPECT_THAT(error.what(), HasSubstr(path()));
    }
  }

  std::string path() const { return (folder_ / "file").string(); }

  const Bytes elements_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Bytes good_ = idx_bytes({2, 3, 2}, elements_);
};

TEST_F(IdxTest, ReadsPlainAndCompressed) {
  write_plain(path(), good_);
  EXPECT_EQ(read_idx(path(), 3).sizes, (std::vector<int64_t>{2, 3, 2}));
  EXPECT_EQ(read_idx(path(), 3).bytes, elements_);
  write_gzip(path(), good_);
  EXPECT_EQ(read_idx(path(), 3).sizes, (std::vector<int64_t>{2, 3, 2}));
  EXPECT_EQ(read_idx(path(), 3).bytes, elements_);
}

TEST_F(IdxTest, ReadsMoreThanOneChunk) {
  Bytes elements(5'000'017);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  write_gzip(path(), idx_bytes({5'000'017}, elements));
  EXPECT_EQ(read_idx(path(), 1).bytes, elements);
}

TEST_F(IdxTest, MissingFile) { expect_error(ErrorCode::kUnavailable, "No such file"); }

TEST_F(IdxTest, EveryTruncationOfAPlainFileIsFound) {
  for (size_t length = 0; length < good_.size(); ++length) {
    write_plain(path(), Bytes(good_.begin(), good_.begin() + static_cast<ptrdiff_t>(length)));
    expect_error(ErrorCode::kCorrupt, length < 16 ? "ends inside its header" : "promises 12 bytes");
  }
}

TEST_F(IdxTest, EveryTruncationOfACompressedFileIsFound) {
  write_gzip(path(), good_);
  const Bytes compressed = read_all(path());
  for (size_t length = 0; length < compressed.size(); ++length) {
    write_plain(path(), Bytes(compressed.begin(), compressed.begin() + static_cast<ptrdiff_t>(length)));
    // Where not even gzip's own header is whole, zlib takes the bytes for a plain file.
    expect_error(ErrorCode::kCorrupt, length < 10 ? "" : "its gzip stream has no end");
  }
}

TEST_F(IdxTest, DamagedChecksumIsFound) {
  write_gzip(path(), good_);
  Bytes compressed = read_all(path());
  compressed[compressed.size() - 6] ^= 1;  // the CRC stands 8 bytes before the end
  write_plain(path(), compressed);
  expect_error(ErrorCode::kCorrupt, "damaged");
}

TEST_F(IdxTest, BytesLeftOver) {
  Bytes bytes = good_;
  bytes.push_back(0);
  write_plain(path(), bytes);
  expect_error(ErrorCode::kCorrupt, "left over");
}

TEST_F(IdxTest, WrongMagic) {
  for (size_t at = 0; at < 4; ++at) {
    Bytes bytes = good_;
    bytes[at] = 0x0d;
    write_plain(path(), bytes);
    expect_error(ErrorCode::kCorrupt, "starts with");
  }
  write_plain(path(), good_);
  expect_error(ErrorCode::kCorrupt, "in 1 dimension starts with 00 00 08 01", 1);
}

TEST_F(IdxTest, HugeSizesNeitherOverflowNorAllocate) {
  write_plain(path(), idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, elements_));
  expect_error(ErrorCode::kCorrupt, "claims more than");
  write_plain(path(), idx_bytes({1u << 20, 1u << 10, 1u << 10}, elements_));
  expect_error(ErrorCode::kCorrupt, "it holds 12");
}

}  // namespace
}  // namespace virga::data
