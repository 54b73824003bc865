#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// The `virga` command: one file per subcommand. A subcommand is a function add_NAME that declares
// its flags on `app` and sets a callback; it is known by its line in the table of main.cc. Errors
// are thrown as virga::Error; main turns them into "virga: <message>" and exit status 1. Wrong
// usage is status 2.
namespace virga::command {

// What main and a subcommand tell each other.
struct Context {
  std::vector<std::string> command;  // the words behind "--"
  int exit_status = 0;               // what virga ends with
};

void add_bench(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_lab(CLI::App& app, Context& context);
void add_probe(CLI::App& app, Context& context);
void add_run(CLI::App& app, Context& context);
void add_train(CLI::App& app, Context& context);  // only in a build with torch

}  // namespace virga::command
