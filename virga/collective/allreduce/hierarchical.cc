// Hierarchical allreduce: reduce-scatter inside the host, ring across hosts on each shard, allgather inside the host.
//
// With m hosts and s shards (the rank count of the smallest host): a host sends 2(m-1)/m S bytes between hosts,
// whatever its number of ranks; inside, a rank sends up to 2(n-1)/n S. Memory as the phases need. Order of summation:
// inside a host by local index (direct.cc); across hosts on each shard by the ring over hosts (ring.cc), which also
// divides averages. What travels as 16 bits does so between hosts only. A lost peer: as in the phases; all ranks fail
// through the epoch's first error. Source: two-dimensional allreduce, e.g. Mikami et al., "Massively distributed SGD",
// 2018; Shi et al., MLSys 2021, 2DTAR.

#include "virga/collective/hierarchy.h"
#include "virga/collective/wire.h"

namespace virga::collective {
namespace {

Task<void> run(Operation& op, Request request) { return hierarchical(op, std::move(request), allreduce_ring.run); }

void charge(const Shape& shape, Ledger& ledger) { charge_hierarchical(shape, ledger, allreduce_ring.charge); }

}  // namespace

const Algorithm allreduce_hierarchical{OpKind::kAllreduce, "hierarchical", run, charge, fits_half_wire};

}  // namespace virga::collective
