#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "virga/cluster/cluster_file.h"
#include "virga/cluster/job.h"
#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/common_start.h"
#include "virga/lab/report.h"

#include "bench_operations.h"
#include "command.h"

// `virga bench collective`: one rank of a measurement of one operation, in the manner of nccl-tests.
namespace virga::command {
namespace {

using cluster::Comm;
using collective::Choice;
using collective::Shape;

constexpr const char* kAll = "all";  // algorithms
constexpr int kWarmUp = 2;           // repetitions before those that count

struct Flags {
  std::string op = "allreduce";
  std::string bytes = "1K:64M";
  std::string algorithm;
  size_t slice_bytes = 0;
  double density = 0.01;
  int repetitions = 7;
  std::string cluster_file;
  std::string json;
};

size_t parse_size(const std::string& text) {
  std::string bytes = text;
  try {
    CLI::AsSizeValue(false)(bytes);  // K is 1,024
  } catch (const CLI::ValidationError&) {
    bytes.clear();
  }
  require(!bytes.empty() && bytes.find_first_not_of("0123456789") == std::string::npos && bytes.size() <= 13,
          "'{}' is no size: a number below 10^13, with K, M or G (1,024 times each) behind it or not", text);
  return std::stoull(bytes);
}

// One size, or all that begin with the first and double up to the last.
std::vector<size_t> parse_range(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {parse_size(text)};
  const size_t first = parse_size(text.substr(0, colon)), last = parse_size(text.substr(colon + 1));
  require(first > 0 && first <= last, "'{}': sizes go from one above zero to one that is not below it", text);
  std::vector<size_t> sizes;
  for (size_t size = first; size <= last; size *= 2) sizes.push_back(size);
  return sizes;
}

std::vector<size_t> parse_sizes(const std::string& text) {
  std::vector<size_t> sizes;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    for (size_t size : parse_range(range)) sizes.push_back(size);
  }
  require(!sizes.empty(), "no sizes are given");
  return sizes;
}

struct Measured {
  std::vector<double> seconds;  // of each repetition, from the common start to the last rank's end
  bool correct = true;          // on all ranks
};

class Bench {
 public:
  Bench(cluster::Job& job, const Flags& flags, const cluster::Figures& figures)
      : job_(job), flags_(flags), figures_(figures), operation_(find_bench_operation(flags.op)) {
    job_.run([this](Comm& comm) { return start_.synchronize(comm); });
  }

  // One size: a row for each algorithm that is asked for.
  std::vector<nlohmann::ordered_json> rows(size_t bytes) {
    const size_t elements = operation_.kind == collective::OpKind::kBarrier ? 0 : bytes / sizeof(float);
    BenchCase data{job_.world_size(), job_.rank(), elements, flags_.density};
    const Shape shape = shape_of(data);
    std::vector<nlohmann::ordered_json> rows;
    const collective::Algorithm* chosen = collective::choose(shape, figures_, {"", flags_.slice_bytes}).algorithm;
    for (std::string_view algorithm : algorithms(shape)) rows.push_back(row(data, shape, algorithm, chosen));
    return rows;
  }

 private:
  Shape shape_of(const BenchCase& data) const {
    Shape shape;
    shape.kind = operation_.kind;
    shape.elements = data.elements;
    shape.layout = std::make_shared<const cluster::Topology>(job_.topology());
    if (operation_.describe != nullptr) operation_.describe(data, shape);
    return shape;
  }

  std::vector<std::string_view> algorithms(const Shape& shape) const {
    if (flags_.algorithm != kAll) return {flags_.algorithm};
    std::vector<std::string_view> names;
    for (const collective::Algorithm* algorithm : collective::algorithms()) {
      const bool fits = algorithm->fits == nullptr || algorithm->fits(shape);
      if (algorithm->kind == shape.kind && fits) names.push_back(algorithm->name);
    }
    return names;
  }

  nlohmann::ordered_json row(BenchCase& data, const Shape& shape, std::string_view algorithm,
                             const collective::Algorithm* chosen) {
    const Choice asked(algorithm, flags_.slice_bytes);
    const collective::Plan plan = collective::choose(shape, figures_, asked);
    Measured measured = measure(data, asked);
    std::sort(measured.seconds.begin(), measured.seconds.end());
    const double median = measured.seconds[measured.seconds.size() / 2];
    const auto bytes = static_cast<double>(data.elements * sizeof(float));
    const double bound = bound_seconds(data, bytes);
    return {{"op", operation_.name},
            {"algorithm", plan.algorithm->name},
            {"chosen", plan.algorithm == chosen},
            {"slice_bytes", plan.slice_bytes},
            {"bytes", data.elements * sizeof(float)},
            {"ranks", data.ranks},
            {"hosts", job_.topology().host_count()},
            {"seconds_median", median},
            {"predicted_seconds", plan.seconds},
            {"bound_seconds", bound},
            {"bound_fraction", bound / median},
            {"bus_bytes_per_second", bytes * operation_.factor(data, data.ranks) / median},
            {"correct", measured.correct}};
  }

  // What must cross the busiest link, at its rate: a host's, or inside the only one a rank's.
  double bound_seconds(const BenchCase& data, double bytes) const {
    const int hosts = job_.topology().host_count();
    const cluster::LinkFigures& link = hosts == 1 ? figures_.inside_host : figures_.between_hosts;
    return bytes * operation_.factor(data, hosts == 1 ? data.ranks : hosts) / link.bytes_per_second;
  }

  Measured measure(BenchCase& data, const Choice& choice) {
    Measured measured;
    for (int repetition = -kWarmUp; repetition < flags_.repetitions; ++repetition) {
      fill(operation_, choice, job_.topology(), data);
      const double seconds = once(data, choice);
      if (repetition >= 0) measured.seconds.push_back(seconds);
    }
    if (operation_.settle != nullptr) {
      job_.run([&](Comm& comm) { return operation_.settle(comm, data, choice); });
    }
    measured.correct = highest_of_all(static_cast<double>(wrong_elements(operation_, data))) == 0;
    return measured;
  }

  double once(BenchCase& data, const Choice& choice) {
    double seconds = 0;
    job_.run([&](Comm& comm) -> Task<void> {
      const Time begin = co_await start_.wait(comm);
      co_await operation_.call(comm, data, choice);
      seconds = to_seconds(comm.loop().now() - begin);
    });
    return highest_of_all(seconds);
  }

  double highest_of_all(double mine) {
    job_.run([&](Comm& comm) {
      return collective::allreduce(comm, comm.topology().world(), std::span(&mine, 1), collective::Reduction::kMax);
    });
    return mine;
  }

  cluster::Job& job_;
  const Flags& flags_;
  const cluster::Figures figures_;
  const BenchOperation& operation_;
  collective::CommonStart start_;
};

// By which ranks notice that their cluster files differ.
std::string text_of(const cluster::Figures& figures) {
  const auto link = [](const cluster::LinkFigures& f) {
    return fmt::format("{} s {} B/s {} s a message, {} B a segment, {} B at once", f.latency_seconds,
                       f.bytes_per_second, f.message_seconds, f.segment_bytes, f.burst_bytes);
  };
  return fmt::format("between hosts {}; inside {}; memory {} B/s", link(figures.between_hosts),
                     link(figures.inside_host), figures.memory_bytes_per_second);
}

void print_row(const nlohmann::ordered_json& row) {
  fmt::print("{:>12} {:>19} {:>12.6f} {:>12.6f} {:>10.3f} {:>9.3f} {:>8.2f} {:>8}\n", row["bytes"].get<size_t>(),
             row["algorithm"].get<std::string>() + (row["chosen"].get<bool>() ? "*" : ""),
             row["seconds_median"].get<double>(), row["predicted_seconds"].get<double>(),
             row["bytes"].get<double>() / row["seconds_median"].get<double>() / 1e9,
             row["bus_bytes_per_second"].get<double>() / 1e9, row["bound_fraction"].get<double>(),
             row["correct"].get<bool>() ? "yes" : "NO");
}

void run(const Flags& flags, Context& context) {
  find_bench_operation(flags.op);
  const std::vector<size_t> sizes = parse_sizes(flags.bytes);
  cluster::Figures figures = cluster::kOrdinaryFigures;
  if (!flags.cluster_file.empty()) figures = cluster::read_cluster_file(flags.cluster_file).figures;
  cluster::JobOptions options;
  options.settings = {{"op", flags.op},
                      {"bytes", flags.bytes},
                      {"algorithm", flags.algorithm},
                      {"density", std::to_string(flags.density)},
                      {"slice bytes", std::to_string(flags.slice_bytes)},
                      {"repetitions", std::to_string(flags.repetitions)},
                      {"figures", text_of(figures)}};
  cluster::Job job(options);
  job.run([&](Comm& comm) -> Task<void> {
    comm.set_figures(figures);
    co_return;
  });
  const bool first = job.rank() == 0;
  if (first && !flags.json.empty()) lab::require_writable(flags.json);
  if (first) {
    fmt::print("{} of fp32, {} ranks on {} hosts, median of {}\n", flags.op, job.world_size(),
               job.topology().host_count(), flags.repetitions);
    fmt::print("{:>12} {:>19} {:>12} {:>12} {:>10} {:>9} {:>8} {:>8}\n", "bytes", "algorithm", "seconds", "predicted",
               "algo GB/s", "bus GB/s", "of bound", "correct");
  }
  Bench bench(job, flags, figures);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t size : sizes) {
    for (const nlohmann::ordered_json& row : bench.rows(size)) {
      rows.push_back(row);
      if (first) print_row(row);
      if (!row["correct"].get<bool>()) context.exit_status = 1;
    }
  }
  if (first && !flags.json.empty()) lab::write_atomically(flags.json, rows.dump(2) + "\n");
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  CLI::App* bench = app.add_subcommand("bench", "Measures, as one rank of a job");
  bench->require_subcommand(1);
  CLI::App* one = bench->add_subcommand("collective", "One operation, for one size or many");
  one->add_option("--op", flags->op, "Any of the catalogue (docs/algorithms.md)")->capture_default_str();
  one->add_option("--bytes", flags->bytes,
                  "Of the vector: sizes, with commas between, or FIRST:LAST, doubled from one to the next")
      ->capture_default_str();
  one->add_option("--algorithm", flags->algorithm,
                  "By its name, or all; default: the one that is predicted to be fastest; a sparse "
                  "allreduce needs one");
  one->add_option("--slice-bytes", flags->slice_bytes, "0: as predicted to be fastest")->capture_default_str();
  one->add_option("--density", flags->density, "Of a sparse allreduce: kept of all")->capture_default_str();
  one->add_option("--repetitions", flags->repetitions, "Of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  one->add_option("--cluster", flags->cluster_file, "File that says what links can do (docs/cluster-file.md)");
  one->add_option("--json", flags->json, "File for the rows; written by rank 0");
  one->callback([flags, &context] { run(*flags, context); });
}

}  // namespace virga::command
