#include <chrono>
#include <cstdio>
#include <string>
#include <unistd.h>

#include "virga/base/error.h"
#include "virga/cluster/launch.h"
#include "virga/torch/models.h"
#include "virga/torch/trainer.h"

#include "command.h"

// `virga train`: one rank of a training run. Its environment says which; without one it trains alone.
namespace virga::command {
namespace {

using train::Progress;
using train::Summary;
using train::TrainOptions;

// A bar that redraws itself on a terminal; elsewhere a plain line every few seconds.
class ProgressPrinter {
 public:
  void operator()(const Progress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (progress.fraction < 1 && now < next_) return;
    next_ = now + (terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5));
    const std::string state = fmt::format("step {} · epoch {} · loss {:.4f} · {:.2f} steps/s", progress.step,
                                          progress.epoch + 1, progress.loss, progress.steps_per_second);
    if (!terminal_) {
      fmt::print("{:3.0f} % · {}\n", 100 * progress.fraction, state);
    } else {
      constexpr int kWidth = 30;
      const int filled = static_cast<int>(kWidth * progress.fraction);
      const std::string drawn = bar(filled, "█") + bar(kWidth - filled, "░");
      fmt::print("\r\033[K{} {:3.0f} % · {}{}", drawn, 100 * progress.fraction, state,
                 progress.fraction >= 1 ? "\n" : "");
    }
    std::fflush(stdout);
  }

 private:
  static std::string bar(int count, const char* piece) {
    std::string text;
    for (int i = 0; i < count; ++i) text += piece;
    return text;
  }

  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  std::chrono::steady_clock::time_point next_{};
};

void print_summary(const Summary& s) {
  fmt::print("{} by {} on {} ranks, {} hosts: {} steps in {:.1f} s, {:.4f} s a step\n", s.model, s.strategy, s.ranks,
             s.hosts, s.steps, s.seconds, s.step_seconds_median);
  fmt::print("  compute {:.4f} s, exposed communication {:.4f} s, selection {:.4f} s a step (medians of rank 0)\n",
             s.compute_seconds_median, s.exposed_communication_seconds_median, s.select_seconds_median);
  fmt::print("  sent to other hosts by the first host: {:.0f} bytes a step (formula: {:.0f})\n",
             s.inter_host_bytes_per_step, s.inter_host_bytes_per_step_formula);
  if (s.skipped_steps > 0) fmt::print("  {} steps were skipped for non-finite gradients\n", s.skipped_steps);
  fmt::print("  train loss {:.4f}, test accuracy {:.2f} %\n", s.train_loss, 100 * s.test_accuracy);
  fmt::print("  parameters {}\n", s.parameters_sha256);
}

struct Flags {
  TrainOptions options;
  std::string value_dtype = "fp16";
  std::string non_finite = "error";
};

void run(Flags& flags) {
  TrainOptions& options = flags.options;
  options.replica.strategy_options.value_dtype = strategy::parse_value_dtype(flags.value_dtype);
  options.replica.non_finite = strategy::parse_non_finite_policy(flags.non_finite);
  const bool first = cluster::read_launch_environment().rank == 0;
  ProgressPrinter printer;
  const Summary summary = train::train(options, [&](const Progress& progress) {
    if (first) printer(progress);
  });
  if (first) print_summary(summary);
}

std::string list(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::string strategy_names() {
  std::vector<std::string> names;
  for (const auto& entry : strategy::strategies()) names.emplace_back(entry.name);
  return list(names);
}

}  // namespace

void add_train(CLI::App& app, Context&) {
  auto flags = std::make_shared<Flags>();
  TrainOptions& o = flags->options;
  CLI::App* train = app.add_subcommand("train", "Trains a model as one rank of a job");
  train->add_option("--model", o.model, "One of " + list(train::model_names()))->capture_default_str();
  train->add_option("--data", o.data, "fashion-mnist, or a folder of IDX files")->capture_default_str();
  train->add_option("--strategy", o.replica.strategy, "One of " + strategy_names())->capture_default_str();
  train->add_option("--density", o.replica.strategy_options.density, "Kept / all gradients, for topk and hitopk")
      ->capture_default_str();
  train->add_option("--value-dtype", flags->value_dtype, "fp32, fp16 or bf16: how selected gradients travel")
      ->capture_default_str();
  train->add_flag("!--no-error-feedback", o.replica.strategy_options.error_feedback,
                  "Forget what was not sent, to see what error feedback is good for");
  train->add_option("--non-finite", flags->non_finite, "error or skip-step: when a gradient holds NaN or Inf")
      ->capture_default_str();
  train->add_option("--bucket-bytes", o.replica.bucket_bytes, "Gradients are communicated in buckets of this size")
      ->capture_default_str();
  train->add_option("--batch-size", o.batch_size, "Of one rank")->capture_default_str();
  train->add_option("--epochs", o.epochs, "Ends the run");
  train->add_option("--steps", o.steps, "Ends the run");
  train->add_option("--seconds", o.seconds, "Ends the run");
  train->add_option("--seed", o.seed, "Of initial values and order of samples")->capture_default_str();
  train->add_option("--threads", o.threads, "For computing; default: cores / ranks on the host")
      ->check(CLI::Range(1, 4096));
  train->add_option("--learning-rate,--lr", o.learning_rate, "After warm-up")->capture_default_str();
  train->add_option("--momentum", o.momentum)->capture_default_str();
  train->add_option("--weight-decay", o.weight_decay)->capture_default_str();
  train->add_option("--warmup-steps", o.warmup_steps, "Steps of linear warm-up")->capture_default_str();
  train->add_option("--test-samples", o.test_samples, "Judge by so many of the test set; default: all, 0: none");
  train->add_option("--metrics", o.metrics, "File for JSON lines; written by rank 0");
  train->callback([flags] { run(*flags); });
}

}  // namespace virga::command
