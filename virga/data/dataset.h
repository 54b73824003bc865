#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace virga::data {

// Every source we know is of MNIST's family: labels 0 to 9.
inline constexpr int kClasses = 10;

// Grey images with labels, as they lie in the file.
struct Dataset {
  int64_t count = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<uint8_t> images;  // count x rows x cols, row-major
  std::vector<uint8_t> labels;  // count, each below kClasses
};

struct DatasetSplits {
  Dataset train;
  Dataset test;
};

// A dataset known by name: a Debian package puts it into a folder.
struct KnownDataset {
  std::string_view name;
  std::string_view folder;
  std::string_view package;
};
std::span<const KnownDataset> known_datasets();

// Loads a dataset by name ("fashion-mnist": the files of the Debian package dataset-fashion-mnist)
// or from a folder with the four IDX files train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz. An argument that
// contains '/' or names a folder is a folder.
//
// Throws kInvalidArgument for an unknown name (the message lists the known ones), kUnavailable
// where the folder or one of the files is missing (the message names the path and, for a known
// name, the package to install), kCorrupt where a file is not what it must be: see read_idx; also
// no items, counts of images and labels that differ, a label outside 0..9, train and test images of
// different sizes.
DatasetSplits load_dataset(const std::string& name_or_folder);

}  // namespace virga::data
