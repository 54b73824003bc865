#pragma once

#include <array>
#include <bit>

// The circulant graph: any number of members in ceil(log2 size) rounds. Pure index arithmetic.
namespace virga::pattern {

// Members, or their blocks, [begin, end).
struct Blocks {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool operator==(const Blocks&) const = default;
};

// The blocks of `count` members in a row, counted around the group from member `begin` on (0 <= begin < size, count <=
// size): up to the group's end, then from member 0.
inline std::array<Blocks, 2> around(int begin, int count, int size) {
  const int end = begin + count;
  if (end <= size) return {Blocks{begin, end}, Blocks{}};
  return {Blocks{begin, size}, Blocks{0, end - size}};
}

// Distances are halved, rounded up, from round to round: size = skip(0) > skip(1) > ... > skip(rounds()) = 1. There is
// one block for each member; a member tells blocks by their distance ahead of its own, so that `block(0)` is its own.
//
// Reduce-scatter, round 0 .. rounds()-1: a member sends its partial results of the blocks at distances
// [skip(round+1), skip(round)) to the member skip(round+1) ahead, for which they are those at distances
// [0, moved(round)), and adds what it receives from the member as far behind to its own of those. Then its own block is
// whole.
//
// Allgather: the same rounds the other way round, rounds()-1 .. 0. A member sends the blocks at distances
// [0, moved(round)), all of which it has by then, to the member skip(round+1) behind, and receives from the member as
// far ahead those at distances [skip(round+1), skip(round)).
//
// Either way every member sends and receives size - 1 blocks. Source: Träff, "Optimal, non-pipelined reduce-scatter and
// allreduce algorithms", 2024; the allgather is that of Bruck et al., 1997, with other distances.
struct Circulant {
  int size;
  int member;

  // ceil(log2 size).
  int rounds() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1))); }
  int skip(int round) const { return (size + (1 << round) - 1) >> round; }
  int moved(int round) const { return skip(round) - skip(round + 1); }

  int ahead(int round) const { return (member + skip(round + 1)) % size; }
  int behind(int round) const { return (member - skip(round + 1) + size) % size; }

  // The member whose block is at this distance.
  int block(int distance) const { return (member + distance) % size; }
  std::array<Blocks, 2> blocks(int distance, int count) const { return around(block(distance), count, size); }
};

}  // namespace virga::pattern
