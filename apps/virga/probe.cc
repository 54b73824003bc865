#include "virga/collective/probe.h"

#include <memory>
#include <string>

#include "virga/cluster/cluster_file.h"
#include "virga/cluster/job.h"
#include "virga/lab/report.h"

#include "command.h"

// `virga probe`: one rank of a measurement of what the job's own links and memories can do.
namespace virga::command {
namespace {

using cluster::ClusterFile;

ClusterFile measured(cluster::Job& job) {
  ClusterFile cluster;
  for (int host = 0; host < job.topology().host_count(); ++host) {
    cluster.ranks_per_host.push_back(static_cast<int>(job.topology().ranks_of(host).size()));
  }
  job.run([&](cluster::Comm& comm) -> Task<void> { cluster.figures = co_await collective::probe(comm); });
  return cluster;
}

void run(const std::string& path) {
  cluster::Job job;
  const bool first = job.rank() == 0;
  if (first && !path.empty()) lab::require_writable(path);
  const std::string text = cluster::write_cluster_file(measured(job));
  if (!first) return;
  if (path.empty()) {
    fmt::print("{}", text);
  } else {
    lab::write_atomically(path, text);
  }
}

}  // namespace

void add_probe(CLI::App& app, Context&) {
  auto path = std::make_shared<std::string>();
  CLI::App* probe = app.add_subcommand("probe", "Measures links and memories, as one rank of a job: a cluster file");
  probe->add_option("--write", *path, "File for what rank 0 would print (docs/cluster-file.md)");
  probe->callback([path] { run(*path); });
}

}  // namespace virga::command
