#include "virga/torch/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "virga/base/error.h"

namespace virga::train {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN; a loss that is not finite must still leave a readable line.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

MetricsFile::MetricsFile(const std::optional<std::string>& path) {
  if (!path) return;
  path_ = *path;
  file_.open(path_, std::ios::trunc);
  if (!file_) fail(ErrorCode::kUnavailable, "can't write metrics to {}: {}", path_, std::strerror(errno));
}

void MetricsFile::step(int64_t step, double loss, double rate, const StepTimes& times) {
  write(Json{{"event", "step"},
             {"step", step},
             {"train_loss", number(loss)},
             {"learning_rate", rate},
             {"step_seconds", times.step_seconds},
             {"compute_seconds", times.compute_seconds},
             {"exposed_communication_seconds", times.exposed_communication_seconds},
             {"select_seconds", times.select_seconds}}
            .dump());
}

void MetricsFile::epoch(int64_t epoch, int64_t step, double loss, const std::string& parameters_sha256) {
  write(Json{{"event", "epoch"},
             {"epoch", epoch},
             {"step", step},
             {"train_loss", number(loss)},
             {"parameters_sha256", parameters_sha256}}
            .dump());
}

void MetricsFile::summary(const Summary& s) {
  write(Json{{"event", "summary"},
             {"model", s.model},
             {"strategy", s.strategy},
             {"density", s.density},
             {"ranks", s.ranks},
             {"hosts", s.hosts},
             {"parameters", s.parameters},
             {"steps", s.steps},
             {"skipped_steps", s.skipped_steps},
             {"seconds", s.seconds},
             {"steps_per_second", s.steps_per_second},
             {"step_seconds_median", s.step_seconds_median},
             {"compute_seconds_median", s.compute_seconds_median},
             {"exposed_communication_seconds_median", s.exposed_communication_seconds_median},
             {"select_seconds_median", s.select_seconds_median},
             {"inter_host_bytes_per_step", s.inter_host_bytes_per_step},
             {"inter_host_bytes_per_step_formula", s.inter_host_bytes_per_step_formula},
             {"train_loss", number(s.train_loss)},
             {"test_accuracy", s.test_accuracy},
             {"parameters_sha256", s.parameters_sha256}}
            .dump());
}

void MetricsFile::write(const std::string& line) {
  if (path_.empty()) return;
  file_ << line << '\n' << std::flush;
  if (!file_) fail(ErrorCode::kUnavailable, "can't write metrics to {}: is the disk full?", path_);
}

}  // namespace virga::train
