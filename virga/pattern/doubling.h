#pragma once

#include <bit>

// Recursive doubling among any number of members: pure index arithmetic, no messages.
namespace virga::pattern {

// As many members as the largest power of two exchange with the one at distance 1, 2, 4, ...; each of the others folds
// into a neighbour before and hears the result from it afterwards. Those that take part keep their order.
struct Doubling {
  int size;

  int taking_part() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(size))); }
  int folded() const { return size - taking_part(); }

  // Among the first 2 * folded() members the odd ones fold into the even ones.
  bool folds(int member) const { return is_paired(member) && member % 2 == 1; }
  bool has_folded(int member) const { return is_paired(member) && member % 2 == 0; }
  // Whom a member meets at a distance, 1, 2, ..., taking_part() / 2. Only for those that take part.
  int partner(int member, int distance) const { return member_at(position(member) ^ distance); }
  int member_at(int position) const { return position < folded() ? 2 * position : position + folded(); }

 private:
  bool is_paired(int member) const { return member < 2 * folded(); }
  int position(int member) const { return is_paired(member) ? member / 2 : member - folded(); }
};

}  // namespace virga::pattern
