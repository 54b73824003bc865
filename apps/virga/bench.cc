#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "virga/cluster/cluster_file.h"
#include "virga/cluster/job.h"
#include "virga/collective/allgather/allgather.h"
#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/barrier/barrier.h"
#include "virga/collective/broadcast/broadcast.h"
#include "virga/collective/reduce_scatter/reduce_scatter.h"
#include "virga/lab/report.h"

#include "command.h"

// `virga bench collective`: one rank of a measurement of one operation, in the manner of nccl-tests.
namespace virga::command {
namespace {

using cluster::Comm;
using collective::Choice;
using collective::OpKind;
using collective::Shape;

struct Flags {
  std::string op = "allreduce";
  std::string bytes = "1K:64M";
  std::string algorithm;
  size_t slice_bytes = 0;
  int repetitions = 7;
  std::string cluster_file;
  std::string json;
};

// What is measured: how it is called, and how many times a vector's bytes the busiest of n members must send or
// receive.
struct Operation {
  const char* name;
  OpKind kind;
  Task<void> (*call)(Comm& comm, std::span<float> data, Choice choice);
  double (*factor)(int n);
};

double shifted(int n) { return static_cast<double>(n - 1) / n; }

constexpr Operation kOperations[] = {
    {"allreduce", OpKind::kAllreduce,
     [](Comm& comm, std::span<float> data, Choice choice) {
       return collective::allreduce(comm, comm.topology().world(), data, {collective::Reduction::kSum, choice});
     },
     [](int n) { return 2 * shifted(n); }},
    {"reduce_scatter", OpKind::kReduceScatter,
     [](Comm& comm, std::span<float> data, Choice choice) {
       return collective::reduce_scatter(comm, comm.topology().world(), data, collective::Reduction::kSum, {}, choice);
     },
     shifted},
    {"allgather", OpKind::kAllgather,
     [](Comm& comm, std::span<float> data, Choice choice) {
       return collective::allgather(comm, comm.topology().world(), data, {}, choice);
     },
     shifted},
    {"broadcast", OpKind::kBroadcast,
     [](Comm& comm, std::span<float> data, Choice choice) {
       return collective::broadcast(comm, comm.topology().world(), 0, data, choice);
     },
     [](int n) { return n > 1 ? 1.0 : 0.0; }},
};

const Operation& find_operation(const std::string& name) {
  std::string known;
  for (const Operation& operation : kOperations) {
    if (operation.name == name) return operation;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", operation.name);
  }
  fail(ErrorCode::kInvalidArgument, "unknown operation '{}'; known are {}", name, known);
}

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
std::vector<size_t> parse_sizes(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {parse_size(text)};
  const size_t first = parse_size(text.substr(0, colon)), last = parse_size(text.substr(colon + 1));
  require(first > 0 && first <= last, "'{}': sizes go from one above zero to one that is not below it", text);
  std::vector<size_t> sizes;
  for (size_t size = first; size <= last; size *= 2) sizes.push_back(size);
  return sizes;
}

// Element e of a rank's vector: a whole number, so that sums come out the same in any order.
float value(Rank rank, size_t e) { return static_cast<float>((static_cast<size_t>(rank) * 7 + e) % 16); }

// Of element e of a vector: who owns it is asked only where parts matter.
float expected(const Operation& operation, size_t elements, int n, Rank rank, size_t e) {
  const auto sum = [&] {
    float all = 0;
    for (Rank other = 0; other < n; ++other) all += value(other, e);
    return all;
  };
  const auto owner = [&] {
    Rank found = 0;
    while (pattern::shard(elements, n, found).end <= e) ++found;
    return found;
  };
  switch (operation.kind) {
    case OpKind::kAllreduce:
      return sum();
    case OpKind::kReduceScatter:
      return owner() == rank ? sum() : value(rank, e);
    case OpKind::kAllgather:
      return value(owner(), e);
    default:
      return value(0, e);
  }
}

struct Measured {
  std::vector<double> seconds;  // of each repetition, that of the slowest rank
  bool correct = true;          // on all ranks
};

class Bench {
 public:
  Bench(cluster::Job& job, const Flags& flags, const cluster::Figures& figures)
      : job_(job), flags_(flags), figures_(figures), operation_(find_operation(flags.op)) {}

  nlohmann::ordered_json row(size_t bytes) {
    const size_t elements = bytes / sizeof(float);
    const collective::Plan plan = planned(elements);
    Measured measured = measure(elements);
    std::sort(measured.seconds.begin(), measured.seconds.end());
    const double median = measured.seconds[measured.seconds.size() / 2];
    const double bound = bound_seconds(elements * sizeof(float));
    const int n = job_.world_size();
    return {{"op", operation_.name},
            {"algorithm", plan.algorithm->name},
            {"slice_bytes", plan.slice_bytes},
            {"bytes", elements * sizeof(float)},
            {"ranks", n},
            {"hosts", job_.topology().host_count()},
            {"seconds_median", median},
            {"predicted_seconds", plan.seconds},
            {"bound_seconds", bound},
            {"bound_fraction", bound / median},
            {"bus_bytes_per_second", static_cast<double>(elements * sizeof(float)) * operation_.factor(n) / median},
            {"correct", measured.correct}};
  }

 private:
  Choice choice() const { return {flags_.algorithm, flags_.slice_bytes}; }

  collective::Plan planned(size_t elements) {
    Shape shape;
    shape.kind = operation_.kind;
    shape.elements = elements;
    if (shape.kind == OpKind::kBroadcast) shape.root = 0;
    shape.layout = std::make_shared<const cluster::Topology>(job_.topology());
    return collective::choose(shape, figures_, choice());
  }

  // What must cross the busiest link, at its rate: a host's, or inside the only one a rank's.
  double bound_seconds(size_t bytes) {
    const int hosts = job_.topology().host_count();
    const bool inside = hosts == 1;
    const double factor = operation_.factor(inside ? job_.world_size() : hosts);
    const cluster::LinkFigures& link = inside ? figures_.inside_host : figures_.between_hosts;
    return static_cast<double>(bytes) * factor / link.bytes_per_second;
  }

  Measured measure(size_t elements) {
    std::vector<float> data(elements);
    Measured measured;
    for (int repetition = -1; repetition < flags_.repetitions; ++repetition) {  // the first one warms up
      for (size_t e = 0; e < elements; ++e) data[e] = value(job_.rank(), e);
      const double seconds = once(data);
      if (repetition >= 0) measured.seconds.push_back(seconds);
    }
    double wrong = 0;
    for (size_t e = 0; e < elements; ++e) {
      wrong += data[e] != expected(operation_, elements, job_.world_size(), job_.rank(), e);
    }
    measured.correct = highest_of_all(wrong) == 0;
    return measured;
  }

  double once(std::vector<float>& data) {
    double seconds = 0;
    job_.run([&](Comm& comm) -> Task<void> {
      co_await collective::barrier(comm, comm.topology().world());
      const Time begin = comm.loop().now();
      co_await operation_.call(comm, std::span(data), choice());
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
  const Operation& operation_;
};

// By which ranks notice that their cluster files differ.
std::string text_of(const cluster::Figures& figures) {
  const auto link = [](const cluster::LinkFigures& f) {
    return fmt::format("{} s {} B/s {} s a message, {} B a segment", f.latency_seconds, f.bytes_per_second,
                       f.message_seconds, f.segment_bytes);
  };
  return fmt::format("between hosts {}; inside {}; memory {} B/s", link(figures.between_hosts),
                     link(figures.inside_host), figures.memory_bytes_per_second);
}

void print_row(const nlohmann::ordered_json& row) {
  fmt::print("{:>12} {:>18} {:>12.6f} {:>12.6f} {:>10.3f} {:>9.3f} {:>8.2f} {:>8}\n", row["bytes"].get<size_t>(),
             row["algorithm"].get<std::string>(), row["seconds_median"].get<double>(),
             row["predicted_seconds"].get<double>(),
             row["bytes"].get<double>() / row["seconds_median"].get<double>() / 1e9,
             row["bus_bytes_per_second"].get<double>() / 1e9, row["bound_fraction"].get<double>(),
             row["correct"].get<bool>() ? "yes" : "NO");
}

void run(const Flags& flags, Context& context) {
  find_operation(flags.op);
  const std::vector<size_t> sizes = parse_sizes(flags.bytes);
  cluster::Figures figures = cluster::kOrdinaryFigures;
  if (!flags.cluster_file.empty()) figures = cluster::read_cluster_file(flags.cluster_file).figures;
  cluster::JobOptions options;
  options.settings = {{"op", flags.op},
                      {"bytes", flags.bytes},
                      {"algorithm", flags.algorithm},
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
    fmt::print("{:>12} {:>18} {:>12} {:>12} {:>10} {:>9} {:>8} {:>8}\n", "bytes", "algorithm", "seconds", "predicted",
               "algo GB/s", "bus GB/s", "of bound", "correct");
  }
  Bench bench(job, flags, figures);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t size : sizes) {
    rows.push_back(bench.row(size));
    if (first) print_row(rows.back());
    if (!rows.back()["correct"].get<bool>()) context.exit_status = 1;
  }
  if (first && !flags.json.empty()) lab::write_atomically(flags.json, rows.dump(2) + "\n");
}

}  // namespace

void add_bench(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  CLI::App* bench = app.add_subcommand("bench", "Measures, as one rank of a job");
  bench->require_subcommand(1);
  CLI::App* one = bench->add_subcommand("collective", "One operation, for one size or many");
  one->add_option("--op", flags->op, "allreduce, reduce_scatter, allgather or broadcast")->capture_default_str();
  one->add_option("--bytes", flags->bytes, "Of the vector: a size, or FIRST:LAST, doubled from one to the next")
      ->capture_default_str();
  one->add_option("--algorithm", flags->algorithm, "By its name; default: the one that is predicted to be fastest");
  one->add_option("--slice-bytes", flags->slice_bytes, "0: as predicted to be fastest")->capture_default_str();
  one->add_option("--repetitions", flags->repetitions, "Of which the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  one->add_option("--cluster", flags->cluster_file, "File that says what links can do (docs/cluster-file.md)");
  one->add_option("--json", flags->json, "File for the rows; written by rank 0");
  one->callback([flags, &context] { run(*flags, context); });
}

}  // namespace virga::command
