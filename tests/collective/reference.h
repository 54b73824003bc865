#pragma once

#include <cstdint>
#include <vector>

#include "virga/base/half.h"
#include "virga/base/random.h"

// The judge: every algorithm again, in one process and plain loops, with the order of summation that the algorithm
// promises. It shares no arithmetic with the library.
namespace virga::reference {

using Vectors = std::vector<std::vector<float>>;  // one a rank

inline Vectors random_vectors(int ranks, size_t elements, uint64_t seed) {
  Vectors vectors(ranks, std::vector<float>(elements));
  for (int rank = 0; rank < ranks; ++rank) {
    Random random(seed, rank);
    for (float& x : vectors[rank])
      x = static_cast<float>(random.uniform() - 0.5) * static_cast<float>(1 << random.below(8));
  }
  return vectors;
}

// Start of part i when n elements are cut in `parts`, the first n % parts of them one longer.
inline size_t cut(size_t n, size_t parts, size_t i) { return n / parts * i + (i < n % parts ? i : n % parts); }

inline size_t part_of(size_t n, size_t parts, size_t element) {
  size_t part = 0;
  while (part + 1 < parts && cut(n, parts, part + 1) <= element) ++part;
  return part;
}

constexpr size_t kSlice = 262144;  // elements
constexpr size_t kSliceBytes = kSlice * sizeof(float);

// Ring over `members` vectors of one length: the sum of all, divided by `divisor`.
inline std::vector<float> ring(const Vectors& members, int divisor, bool half) {
  const size_t n = members.size(), elements = members[0].size();
  std::vector<float> result(elements);
  for (size_t e = 0; e < elements; ++e) {
    const size_t begin = e / kSlice * kSlice;
    const size_t length = begin + kSlice < elements ? kSlice : elements - begin;
    const size_t segment = part_of(length, n, e - begin);
    const auto round = [](float x) { return half_to_float(float_to_half(x)); };
    float sum = 0;
    for (size_t step = 1; step <= n; ++step) {
      float x = members[(segment + step) % n][e];
      if (half && divisor > 1) x *= 1.0f / static_cast<float>(divisor);
      sum = step == 1 ? x : sum + x;
      if (half) sum = round(sum);
    }
    result[e] = half ? sum : sum / static_cast<float>(divisor);
  }
  return result;
}

inline std::vector<float> sum_in_order(const Vectors& members) {
  std::vector<float> sum = members[0];
  for (size_t m = 1; m < members.size(); ++m) {
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += members[m][e];
  }
  return sum;
}

// Ring over parts: element e of part i is added up from member i+1 on, around to member i.
inline float ring_part(const Vectors& members, size_t part, size_t e) {
  const size_t n = members.size();
  float sum = members[(part + 1) % n][e];
  for (size_t step = 2; step <= n; ++step) sum += members[(part + step) % n][e];
  return sum;
}

// Circulant graph: element e of part i is added up by distance behind member i, distances halved and rounded up.
inline float circulant(const Vectors& members, size_t part, size_t e) {
  const size_t n = members.size();
  std::vector<float> x;  // by distance
  for (size_t distance = 0; distance < n; ++distance) x.push_back(members[(part + n - distance) % n][e]);
  while (x.size() > 1) {
    const size_t half = (x.size() + 1) / 2;
    for (size_t distance = 0; distance + half < x.size(); ++distance) x[distance] += x[distance + half];
    x.resize(half);
  }
  return x[0];
}

// Host sums by local index, then over hosts. ranks_per_host: as below.
inline float host_by_host(const Vectors& ranks, const std::vector<int>& ranks_per_host, size_t e) {
  float sum = 0;
  size_t rank = 0;
  for (size_t host = 0; host < ranks_per_host.size(); ++host) {
    float inside = ranks[rank++][e];
    for (int local = 1; local < ranks_per_host[host]; ++local) inside += ranks[rank++][e];
    sum = host == 0 ? inside : sum + inside;
  }
  return sum;
}

inline std::vector<float> divided(std::vector<float> sum, int divisor) {
  for (float& x : sum) x /= static_cast<float>(divisor);
  return sum;
}

// Neighbours in pairs, then pairs of pairs. First as many pairs as leave a power of two.
inline std::vector<float> recursive_doubling(Vectors partial, int divisor) {
  size_t power = 1;
  while (2 * power <= partial.size()) power *= 2;
  for (size_t pairs = partial.size() - power; partial.size() > 1; pairs = partial.size() / 2) {
    Vectors next;
    for (size_t i = 0; i < pairs; ++i) next.push_back(sum_in_order({partial[2 * i], partial[2 * i + 1]}));
    next.insert(next.end(), partial.begin() + static_cast<std::ptrdiff_t>(2 * pairs), partial.end());
    partial = next;
  }
  return divided(partial[0], divisor);
}

// Every member's shard on the circulant graph.
inline std::vector<float> halving_doubling(Vectors members, int divisor) {
  const size_t n = members.size(), elements = members[0].size();
  std::vector<float> sum(elements);
  for (size_t e = 0; e < elements; ++e) sum[e] = circulant(members, part_of(elements, n, e), e);
  return divided(sum, divisor);
}

// The vectors of all members in the order of their distance behind the root.
inline Vectors behind(const Vectors& members, size_t root) {
  Vectors x;
  for (size_t d = 0; d < members.size(); ++d) x.push_back(members[(root + d) % members.size()]);
  return x;
}

// Along a chain towards the root, the farthest member first.
inline std::vector<float> reduced_by_chain(const Vectors& members, size_t root) {
  const Vectors x = behind(members, root);
  return sum_in_order({x.rbegin(), x.rend()});
}

// To member 0 along a chain, and back.
inline std::vector<float> chain(Vectors members, int divisor) { return divided(reduced_by_chain(members, 0), divisor); }

// The binary tree that has [begin, end) in order: its root has as many to its left as fill a tree.
inline float in_order_tree(const std::vector<float>& x, size_t begin, size_t end) {
  size_t power = 1;
  while (2 * power <= end - begin) power *= 2;
  const size_t root = begin + power - 1;
  float sum = x[root];
  if (root > begin) sum = in_order_tree(x, begin, root) + sum;
  if (root + 1 < end) sum += in_order_tree(x, root + 1, end);
  return sum;
}

// Two trees, a half each; in the second one member n - 1 comes first.
inline std::vector<float> double_binary_tree(Vectors members, int divisor) {
  const size_t n = members.size(), elements = members[0].size();
  std::vector<float> sum(elements), x(n);
  for (size_t e = 0; e < elements; ++e) {
    const size_t tree = part_of(elements, 2, e);
    for (size_t m = 0; m < n; ++m) x[(m + tree) % n] = members[m][e];
    sum[e] = in_order_tree(x, 0, n);
  }
  return divided(sum, divisor);
}

// Up a binomial tree: those at distance 1 from each other, then at distance 2, and so on.
inline std::vector<float> reduced_by_binomial_tree(const Vectors& members, size_t root) {
  Vectors x = behind(members, root);
  for (size_t step = 1; step < x.size(); step *= 2) {
    for (size_t d = 0; d + step < x.size(); d += 2 * step) x[d] = sum_in_order({x[d], x[d + step]});
  }
  return x[0];
}

// ranks_per_host: the layout; ranks are numbered host by host.
inline std::vector<float> hierarchical(const Vectors& ranks, const std::vector<int>& ranks_per_host, int divisor,
                                       bool half) {
  Vectors hosts;
  size_t rank = 0, owners = ranks_per_host[0];
  for (int count : ranks_per_host) {
    hosts.push_back(sum_in_order(Vectors(ranks.begin() + rank, ranks.begin() + rank + count)));
    rank += count;
    if (static_cast<size_t>(count) < owners) owners = count;
  }
  const size_t elements = ranks[0].size();
  std::vector<float> result(elements);
  for (size_t owner = 0; owner < owners; ++owner) {
    const size_t begin = cut(elements, owners, owner), end = cut(elements, owners, owner + 1);
    Vectors shards;
    for (const auto& host : hosts) shards.emplace_back(host.begin() + begin, host.begin() + end);
    const std::vector<float> shard = ring(shards, divisor, half);
    std::copy(shard.begin(), shard.end(), result.begin() + begin);
  }
  return result;
}

}  // namespace virga::reference
