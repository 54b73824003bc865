#include "virga/lab/lab.h"

#include <memory>

#include "virga/lab/report.h"

#include "command.h"

namespace virga::command {
namespace {

struct Flags {
  lab::LabOptions lab;
  std::string json;
};

int run_lab(Flags flags, const Context& context) {
  if (!flags.json.empty()) lab::require_writable(flags.json);
  const lab::InterruptSignals signals;
  flags.lab.crew.interrupt_fd = signals.fd();
  lab::Lab lab(flags.lab);
  lab.start(context.command);
  const lab::Report report = lab.wait();
  if (!flags.json.empty()) lab::write_atomically(flags.json, lab::to_json(report));
  return report.result.status;
}

}  // namespace

void add_lab(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  CLI::App* lab =
      app.add_subcommand("lab", "Emulates a cluster on this machine and runs a command once per rank (needs root)");
  lab->footer("Usage: virga lab [flags] command...");
  lab->add_option("--hosts", flags->lab.hosts, "Hosts, 1 to 64")->capture_default_str();
  lab->add_option("--ranks-per-host", flags->lab.ranks_per_host, "Ranks on each host, 1 to 64")->capture_default_str();
  lab->add_option("--rate", flags->lab.rate, "Rate of each host's link, each way: kbit, mbit or gbit, as in 200mbit")
      ->capture_default_str();
  lab->add_option("--json", flags->json, "Write traffic per host and status per rank to this file");
  lab->add_option("--timeout", flags->lab.crew.timeout_seconds,
                  "End the run after so many seconds, with exit status 124; 0: never")
      ->capture_default_str();
  lab->add_option("--grace", flags->lab.crew.grace_seconds, "Seconds the other ranks may go on after one has failed")
      ->capture_default_str();
  lab->callback([flags, &context] { context.exit_status = run_lab(*flags, context); });
}

}  // namespace virga::command
