#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace virga::train {

// What one step took. Seconds of wall time on this rank.
struct StepTimes {
  double step_seconds = 0;
  double compute_seconds = 0;                // forward, backward, update
  double exposed_communication_seconds = 0;  // waiting for gradients after backward
  double select_seconds = 0;                 // on the worker; overlaps with the others
};

// How a run ended; see README for the meaning of each.
struct Summary {
  std::string model;
  std::string strategy;
  double density = 1;
  int ranks = 1;
  int hosts = 1;
  int64_t parameters = 0;
  int64_t steps = 0;
  int64_t skipped_steps = 0;
  double seconds = 0;  // of training, without set-up and evaluation
  double steps_per_second = 0;
  double step_seconds_median = 0;
  double compute_seconds_median = 0;
  double exposed_communication_seconds_median = 0;
  double select_seconds_median = 0;
  double inter_host_bytes_per_step = 0;          // sent by rank 0's host, counted by the transport
  double inter_host_bytes_per_step_formula = 0;  // docs/algorithms.md
  double train_loss = 0;  // mean over all ranks of their last epoch, or of the last 50 steps if longer
  double test_accuracy = 0;
  std::string parameters_sha256;
};

// The middle value; the mean of the two middle ones for an even count; 0 for none.
double median(std::vector<double> values);

// JSON lines, one event a line, flushed line by line so that a killed run leaves what it had. Without a path it writes
// nothing.
class MetricsFile {
 public:
  // Throws kUnavailable if the file can't be written.
  explicit MetricsFile(const std::optional<std::string>& path);

  void step(int64_t step, double loss, double rate, const StepTimes& times);
  void epoch(int64_t epoch, int64_t step, double loss, const std::string& parameters_sha256);
  void summary(const Summary& summary);

 private:
  void write(const std::string& line);
  std::string path_;
  std::ofstream file_;
};

}  // namespace virga::train
