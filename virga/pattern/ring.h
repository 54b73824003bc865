#pragma once

// The ring: each member sends to the next and receives from the previous one. Pure index arithmetic.
namespace virga::pattern {

struct Ring {
  int size;
  int member;

  int next() const { return (member + 1) % size; }
  int previous() const { return (member + size - 1) % size; }

  // Reduce-scatter, step 0 .. size-2: which segment this member passes on, and which it receives and adds to its own.
  // After the last step member i holds the whole sum of segment i, added in the order i+1, i+2, ..., i (mod size).
  int reduce_send(int step) const { return wrap(member - step - 1); }
  int reduce_receive(int step) const { return wrap(member - step - 2); }

  // Allgather, step 0 .. size-2: every member begins with its own segment.
  int gather_send(int step) const { return wrap(member - step); }
  int gather_receive(int step) const { return wrap(member - step - 1); }

 private:
  int wrap(int segment) const { return ((segment % size) + size) % size; }
};

// How far a member of a group of `size` is behind the root, counted around the group.
inline int distance_behind(int root, int member, int size) { return (member - root + size) % size; }

// The chain: from the root around the ring; member at distance d receives from distance d-1 and sends to d+1.
struct Chain {
  int size;
  int root;
  int member;

  int distance() const { return distance_behind(root, member, size); }
  bool first() const { return distance() == 0; }
  bool last() const { return distance() == size - 1; }
  int next() const { return (member + 1) % size; }
  int previous() const { return (member + size - 1) % size; }
};

}  // namespace virga::pattern
