#pragma once

#include "virga/lab/crew.h"

// Ranks on this machine, without namespaces: what `virga run` does.
namespace virga::lab {

// Starts `command` once per rank (1..1024) with the environment of torchrun: all on one host,
// meeting at 127.0.0.1 on a port that was free just now, as was the one above it. They die with the
// calling thread.
void add_local_ranks(Crew& crew, int ranks, const Arguments& command);

// The same with a crew of their own; returns when all have ended.
CrewResult run_local(int ranks, const Arguments& command, const CrewOptions& options);

}  // namespace virga::lab
