#pragma once

#include "virga/cluster/comm.h"

namespace virga::collective {

// Measures what the job's own links and memories can do: what predictions and choices are made from (Comm::set_figures,
// cluster::write_cluster_file). All ranks call it, with nothing else under way; all get the same figures. What can't be
// measured, a way between hosts where there is one or inside where each rank has its own, is what `unmeasured` says.
//
// Between hosts the first rank of each sends to that of the next, and receives as much; inside a host so does every
// rank: links are as loaded as rings and the like load them. Time for each way: 24 latencies, and eight transfers of a
// tenth of a second each; where that is too short for 120 KiB, of 120 KiB each, and 16 MiB at most. Memory 32 MiB.
// Throws what ends the epoch.
Task<cluster::Figures> probe(cluster::Comm& comm, cluster::Figures unmeasured = cluster::kOrdinaryFigures);

}  // namespace virga::collective
