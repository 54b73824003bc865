// The operation alltoall: what its request is.

#include "virga/collective/alltoall/alltoall.h"

namespace virga::collective {
namespace {

std::vector<size_t> row_by_row(const std::vector<std::vector<size_t>>& counts, int members) {
  std::vector<size_t> all;
  for (const std::vector<size_t>& row : counts) {
    require(row.size() == static_cast<size_t>(members), "alltoall got a row of {} sizes for {} members", row.size(),
            members);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

size_t sum_of(const std::vector<size_t>& counts) {
  size_t sum = 0;
  for (size_t count : counts) {
    require(count <= SIZE_MAX - sum, "alltoall's sizes add up to more than can be counted");
    sum += count;
  }
  return sum;
}

}  // namespace

pattern::Range alltoall_in(const Shape& shape, int from, int to) {
  const int n = shape.members();
  const pattern::Range part = shape.part(from * n + to);
  const size_t begin = shape.offsets[static_cast<size_t>(from * n)];
  return {part.begin - begin, part.end - begin};
}

pattern::Range alltoall_out(const Shape& shape, int from, int to) {
  size_t begin = 0;
  for (int i = 0; i < from; ++i) begin += shape.part(i * shape.members() + to).size();
  return {begin, begin + shape.part(from * shape.members() + to).size()};
}

Task<void> alltoall(Comm& comm, Group group, Vector in, Vector out, std::vector<std::vector<size_t>> counts,
                    Choice choice) {
  const int n = group.size(), me = group.member(comm.rank());
  const auto members = static_cast<size_t>(n);
  if (counts.empty()) {
    require(in.elements % members == 0, "alltoall: {} elements can't be cut into {} equal parts", in.elements, n);
    counts.assign(members, std::vector<size_t>(members, in.elements / members));
  }
  const std::vector<size_t> all = row_by_row(counts, n);
  Shape shape;
  shape.kind = OpKind::kAlltoall;
  shape.dtype = shape.wire = in.dtype;
  shape.elements = sum_of(all);
  shape.offsets = checked_offsets(shape, all, n * n);
  size_t sent = 0, received = 0;
  for (int other = 0; other < n && me >= 0; ++other) {
    sent += shape.part(me * n + other).size();
    received += shape.part(other * n + me).size();
  }
  require(me < 0 || (in.elements == sent && out.elements == received && in.dtype == out.dtype),
          "alltoall: rank {} gives {} x {} and has room for {} x {} where its sizes add up to {} and {}", comm.rank(),
          in.elements, to_string(in.dtype), out.elements, to_string(out.dtype), sent, received);
  return perform(comm, {std::move(group), std::move(shape), in, out}, choice);
}

}  // namespace virga::collective
