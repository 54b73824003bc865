// Flat top-k: every rank selects, all ranks exchange what they selected.
//
// Rounds 1; bytes sent (n-1) p per rank, where p = SparseFormat(S, k).payload_bytes(): grows with the number of ranks,
// and n ranks of a host share its link. Memory n p and the residual (S). Order of summation: member 0, 1, ..., n-1. A
// lost peer: all that wait for its message fail, the others through the epoch's first error. Source: top-k SGD with
// error feedback, Stich et al. 2018; "NaiveAG" in Shi et al., MLSys 2021.

#include "virga/collective/sparse_allreduce/flat.h"

namespace virga::collective {

Task<void> sparse_allreduce_flat(Comm& comm, Group group, FloatVector data, SparseOptions options, Selector& selector) {
  sparse_format(data.elements, options);  // throws on options that can't be followed, before anything is sent
  cluster::OpDescriptor descriptor{net::OpKind::kSparseAllreduce, DType::kFloat32, data.elements};
  descriptor.codec = static_cast<uint32_t>(options.value_dtype);
  descriptor.options = fingerprint(options);
  return comm.perform(group, descriptor,
                      [&](Operation& op) { return exchange_selected(op, 0, group, data, options, selector); });
}

}  // namespace virga::collective
