#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <unistd.h>
#include <vector>

#include "virga/lab/lab.h"
#include "virga/lab/local.h"

#include "lab/support.h"

namespace virga::end_to_end {

using lab::Arguments;

// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = std::filesystem::temp_directory_path() / "virga-test-XXXXXX";
    path_ = mkdtemp(path.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline Arguments train(const std::vector<std::string>& arguments) {
  Arguments command = {VIRGA_COMMAND, "train", "--model", "lenet5", "--threads", "1", "--batch-size", "8"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// The last line of a metrics file.
inline nlohmann::json summary(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) last = line;
  return nlohmann::json::parse(last);
}

inline lab::CrewOptions captured(double timeout_seconds) {
  lab::CrewOptions options = lab::captured();
  options.timeout_seconds = timeout_seconds;
  return options;
}

}  // namespace virga::end_to_end
