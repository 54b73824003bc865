#include <memory>

#include "virga/lab/local.h"

#include "command.h"

namespace virga::command {
namespace {

struct Flags {
  int ranks = 1;
  lab::CrewOptions crew;
};

int run_ranks(Flags flags, const Context& context) {
  const lab::InterruptSignals signals;
  flags.crew.interrupt_fd = signals.fd();
  return lab::run_local(flags.ranks, context.command, flags.crew).status;
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto flags = std::make_shared<Flags>();
  CLI::App* run = app.add_subcommand("run", "Runs a command once per rank on this machine");
  run->footer("Usage: virga run [flags] command...");
  run->add_option("-n,--ranks", flags->ranks, "Ranks, 1 to 1024")->required();
  run->add_option("--timeout", flags->crew.timeout_seconds,
                  "End the run after so many seconds, with exit status 124; 0: never")
      ->capture_default_str();
  run->add_option("--grace", flags->crew.grace_seconds, "Seconds the other ranks may go on after one has failed")
      ->capture_default_str();
  run->callback([flags, &context] { context.exit_status = run_ranks(*flags, context); });
}

}  // namespace virga::command
