#include <algorithm>
#include <cstdio>
#include <exception>
#include <fmt/format.h>

#include "command.h"

namespace {

using virga::command::Context;

constexpr int kFailure = 1;
constexpr int kWrongUsage = 2;

struct Subcommand {
  const char* name;
  void (*add)(CLI::App& app, Context& context);
  bool takes_command;  // words behind its own flags
};

constexpr Subcommand kSubcommands[] = {
#ifdef VIRGA_TORCH_VERSION  // built with libtorch
    {"train", virga::command::add_train, false},
#endif
    {"bench", virga::command::add_bench, false},   {"probe", virga::command::add_probe, false},
    {"run", virga::command::add_run, true},        {"lab", virga::command::add_lab, true},
    {"doctor", virga::command::add_doctor, false},
};

// Everything behind a first "--" is somebody else's command line; CLI11 never sees it.
std::vector<std::string> split_command(int argc, char** argv, Context& context) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark != words.end()) context.command.assign(mark + 1, words.end());
  words.erase(mark, words.end());
  std::reverse(words.begin(), words.end());  // the order in which CLI11 wants a vector
  return words;
}

// Runs before the callback of the subcommand. Without a "--" the command begins at the first word that is no flag.
void take_command(const Subcommand& subcommand, const CLI::App& app, Context& context) {
  std::vector<std::string> first = app.remaining();
  if (!first.empty() && first[0].starts_with('-')) throw CLI::ExtrasError(subcommand.name, first);
  if (!first.empty() && subcommand.takes_command) {
    if (!context.command.empty()) first.emplace_back("--");  // one that belongs to the command
    context.command.insert(context.command.begin(), first.begin(), first.end());
  }
  if (subcommand.takes_command && context.command.empty()) {
    throw CLI::ValidationError(subcommand.name,
                               "say what to run: virga " + std::string(subcommand.name) + " [flags] command...");
  }
  if (!subcommand.takes_command && !context.command.empty()) {
    throw CLI::ValidationError(subcommand.name, "takes no command behind --");
  }
}

std::string usage_error(const CLI::App*, const CLI::Error& error) {
  return fmt::format("virga: {}\nRun it with --help for the flags.\n", error.what());
}

int run(int argc, char** argv) {
  Context context;
  CLI::App app("Trains deep-learning models across machines joined by ordinary networks.", "virga");
  app.require_subcommand(1);
  app.failure_message(usage_error);
  for (const Subcommand& subcommand : kSubcommands) {
    subcommand.add(app, context);
    CLI::App* added = app.get_subcommand(subcommand.name);
    if (subcommand.takes_command) added->prefix_command();
    added->parse_complete_callback([&subcommand, added, &context] { take_command(subcommand, *added, context); });
  }
  try {
    app.parse(split_command(argc, argv, context));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  return context.exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "virga: %s\n", error.what());
    return kFailure;
  }
}
