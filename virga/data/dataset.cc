#include "virga/data/dataset.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "virga/base/error.h"
#include "virga/data/idx.h"

namespace virga::data {
namespace {

namespace fs = std::filesystem;

// To know another one, add a line.
constexpr std::array kKnownDatasets = {
    KnownDataset{"fashion-mnist", "/usr/share/datasets/fashion-mnist", "dataset-fashion-mnist"},
};

std::string known_names() {
  std::string names;
  for (const KnownDataset& known : kKnownDatasets) names.append(names.empty() ? "" : ", ").append(known.name);
  return names;
}

// Finds `name` or `name`.gz in the folder.
std::string find_file(const fs::path& folder, std::string_view name, const std::string& hint) {
  const fs::path plain = folder / name;
  const fs::path compressed = folder / (std::string(name) + ".gz");
  std::error_code ignored;
  if (fs::exists(plain, ignored)) return plain.string();
  if (fs::exists(compressed, ignored)) return compressed.string();
  fail(ErrorCode::kUnavailable, "there is neither {} nor {}: {}", plain.string(), compressed.string(), hint);
}

void check_labels(const std::string& path, const std::vector<uint8_t>& labels) {
  const auto wrong = std::find_if(labels.begin(), labels.end(), [](uint8_t label) { return label >= kClasses; });
  if (wrong == labels.end()) return;
  fail(ErrorCode::kCorrupt, "{}: item {} has the label {}, outside 0..{}", path, wrong - labels.begin(), *wrong,
       kClasses - 1);
}

Dataset load_split(const fs::path& folder, const std::string& prefix, const std::string& hint) {
  const std::string images_path = find_file(folder, prefix + "-images-idx3-ubyte", hint);
  const std::string labels_path = find_file(folder, prefix + "-labels-idx1-ubyte", hint);
  IdxArray images = read_idx(images_path, 3);
  IdxArray labels = read_idx(labels_path, 1);
  if (images.bytes.empty()) {
    fail(ErrorCode::kCorrupt, "{} holds no pixels: its sizes are {} x {} x {}", images_path, images.sizes[0],
         images.sizes[1], images.sizes[2]);
  }
  if (images.sizes[0] != labels.sizes[0]) {
    fail(ErrorCode::kCorrupt, "{} holds {} images, but {} holds {} labels", images_path, images.sizes[0], labels_path,
         labels.sizes[0]);
  }
  check_labels(labels_path, labels.bytes);
  return {images.sizes[0], images.sizes[1], images.sizes[2], std::move(images.bytes), std::move(labels.bytes)};
}

DatasetSplits load_folder(const fs::path& folder, const std::string& hint) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    fail(ErrorCode::kUnavailable, "there is no folder {}: {}", folder.string(), hint);
  }
  DatasetSplits splits{load_split(folder, "train", hint), load_split(folder, "t10k", hint)};
  const Dataset &train = splits.train, &test = splits.test;
  if (train.rows != test.rows || train.cols != test.cols) {
    fail(ErrorCode::kCorrupt, "{}: train images are {} x {}, test images {} x {}", folder.string(), train.rows,
         train.cols, test.rows, test.cols);
  }
  return splits;
}

}  // namespace

std::span<const KnownDataset> known_datasets() { return kKnownDatasets; }

DatasetSplits load_dataset(const std::string& name_or_folder) {
  for (const KnownDataset& known : kKnownDatasets) {
    if (name_or_folder == known.name) {
      return load_folder(known.folder, fmt::format("install it with: apt install {}", known.package));
    }
  }
  std::error_code ignored;
  const bool is_folder = name_or_folder.find('/') != std::string::npos || fs::is_directory(name_or_folder, ignored);
  require(is_folder, "unknown dataset \"{}\"; known: {}; a folder with the four IDX files works too (./folder)",
          name_or_folder, known_names());
  return load_folder(name_or_folder,
                     "a dataset folder holds train-images-idx3-ubyte, train-labels-idx1-ubyte, "
                     "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or .gz");
}

}  // namespace virga::data
