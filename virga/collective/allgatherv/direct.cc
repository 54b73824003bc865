// Allgatherv by direct exchange: every member sends its bytes to every other one, the nearest first, so that no
// receiver is everybody's first target.
//
// Rounds 1; bytes sent (n-1) b_i; memory none; no arithmetic. A lost peer: those that wait for its bytes fail with the
// epoch's first error. One round instead of the ring's n-1: what sparse messages need, which are small.

#include "virga/collective/allgatherv/direct.h"

#include <numeric>

#include "virga/base/hash.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

uint64_t hash_of(const std::vector<size_t>& bytes) {
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size() * sizeof bytes[0]});
}

}  // namespace

Task<void> allgatherv_direct(Operation& op, unsigned phase, Group group, std::vector<size_t> bytes, net::Buffer data) {
  const int n = group.size(), me = group.member(op.comm().rank());
  std::vector<size_t> offset(n);
  std::exclusive_scan(bytes.begin(), bytes.end(), offset.begin(), size_t{0});
  std::vector<Task<void>> parts;
  const uint64_t chunk = chunk_number(phase, 0, 0);
  for (int distance = 1; distance < n; ++distance) {
    const int to = (me + distance) % n, from = (me - distance + n) % n;
    parts.push_back(op.send(group.rank(to), chunk, data.part(offset[me], bytes[me])));
    parts.push_back(op.receive(group.rank(from), chunk, data.part(offset[from], bytes[from])));
  }
  co_await when_all(std::move(parts), &op.scope());
}

Task<void> allgatherv(Comm& comm, Group group, std::vector<size_t> bytes, net::Buffer data, uint64_t layout) {
  require(bytes.size() == static_cast<size_t>(group.size()), "allgatherv got {} sizes for {} members", bytes.size(),
          group.size());
  const size_t sum = std::accumulate(bytes.begin(), bytes.end(), size_t{0});
  require(sum == data.bytes, "allgatherv's sizes add up to {} bytes, the buffer has {}", sum, data.bytes);
  cluster::OpDescriptor descriptor{net::OpKind::kAllgatherv, DType::kByte, data.bytes};
  descriptor.options = hash_of(bytes) ^ layout;
  return comm.perform(group, descriptor, [&](Operation& op) { return allgatherv_direct(op, 0, group, bytes, data); });
}

}  // namespace virga::collective
