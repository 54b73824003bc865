#include "virga/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "virga/base/error.h"

#include "data/idx_files.h"

namespace virga::data {
namespace {

using testing::HasSubstr;

class DatasetTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    write_plain(folder_ / "train-images-idx3-ubyte", idx_bytes({3, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    write_gzip(folder_ / "train-labels-idx1-ubyte.gz", idx_bytes({3}, {0, 9, 4}));
    write_gzip(folder_ / "t10k-images-idx3-ubyte.gz", idx_bytes({1, 2, 2}, {13, 14, 15, 16}));
    write_plain(folder_ / "t10k-labels-idx1-ubyte", idx_bytes({1}, {7}));
  }

  void expect_error(const std::string& name, ErrorCode code, const std::string& part) {
    try {
      load_dataset(name);
      FAIL() << "no error, expected: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
};

TEST_F(DatasetTest, LoadsAFolder) {
  const DatasetSplits splits = load_dataset(folder_.string());
  EXPECT_EQ(splits.train.count, 3);
  EXPECT_EQ(splits.train.rows, 2);
  EXPECT_EQ(splits.train.cols, 2);
  EXPECT_EQ(splits.train.images.size(), 12u);
  EXPECT_EQ(splits.train.labels, (Bytes{0, 9, 4}));
  EXPECT_EQ(splits.test.images, (Bytes{13, 14, 15, 16}));
  EXPECT_EQ(splits.test.labels, (Bytes{7}));
}

TEST_F(DatasetTest, LabelOutOfRange) {
  write_gzip(folder_ / "train-labels-idx1-ubyte.gz", idx_bytes({3}, {0, 10, 4}));
  expect_error(folder_.string(), ErrorCode::kCorrupt, "item 1 has the label 10, outside 0..9");
}

TEST_F(DatasetTest, CountsDiffer) {
  write_gzip(folder_ / "train-labels-idx1-ubyte.gz", idx_bytes({2}, {0, 9}));
  expect_error(folder_.string(), ErrorCode::kCorrupt, "holds 3 images, but");
}

TEST_F(DatasetTest, NoItems) {
  write_gzip(folder_ / "t10k-images-idx3-ubyte.gz", idx_bytes({0, 2, 2}, {}));
  write_plain(folder_ / "t10k-labels-idx1-ubyte", idx_bytes({0}, {}));
  expect_error(folder_.string(), ErrorCode::kCorrupt, "holds no pixels");
}

TEST_F(DatasetTest, TrainAndTestOfDifferentSizes) {
  write_gzip(folder_ / "t10k-images-idx3-ubyte.gz", idx_bytes({1, 1, 2}, {13, 14}));
  expect_error(folder_.string(), ErrorCode::kCorrupt, "train images are 2 x 2, test images 1 x 2");
  write_gzip(folder_ / "t10k-images-idx3-ubyte.gz", idx_bytes({1, 2, 1}, {13, 14}));
  expect_error(folder_.string(), ErrorCode::kCorrupt, "train images are 2 x 2, test images 2 x 1");
}

TEST_F(DatasetTest, MissingFileAndFolder) {
  std::filesystem::remove(folder_ / "t10k-labels-idx1-ubyte");
  expect_error(folder_.string(), ErrorCode::kUnavailable, "t10k-labels-idx1-ubyte.gz");
  expect_error((folder_ / "none").string(), ErrorCode::kUnavailable, "there is no folder");
}

TEST_F(DatasetTest, UnknownNameListsTheKnown) {
  expect_error("imagenet", ErrorCode::kInvalidArgument, "unknown dataset \"imagenet\"; known: fashion-mnist");
}

// The package is part of ./dev setup, so a machine where this fails is not set up.
TEST(FashionMnist, IsFoundByName) {
  const DatasetSplits splits = load_dataset("fashion-mnist");
  EXPECT_EQ(splits.train.count, 60000);
  EXPECT_EQ(splits.test.count, 10000);
  EXPECT_EQ(splits.train.rows, 28);
  EXPECT_EQ(splits.train.cols, 28);
  for (const Dataset* split : {&splits.train, &splits.test}) {  // it is balanced: a tenth of the items in each class
    std::vector<int64_t> items(kClasses);
    for (uint8_t label : split->labels) ++items[label];
    EXPECT_EQ(items, std::vector<int64_t>(kClasses, split->count / kClasses));
  }
}

}  // namespace
}  // namespace virga::data
