#include "virga/cluster/rank_list.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace virga::cluster {

std::string list_ranks(const std::vector<Rank>& ranks) {
  constexpr size_t kNamed = 16;
  const auto end = ranks.begin() + static_cast<ptrdiff_t>(std::min(kNamed, ranks.size()));
  std::string text = fmt::format("{{{}", fmt::join(ranks.begin(), end, ", "));
  if (ranks.size() > kNamed) text += fmt::format(", ... {} more", ranks.size() - kNamed);
  return text + "}";
}

std::string name_ranks(const std::vector<Rank>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  return "ranks " + list_ranks(ranks);
}

std::string printable(std::string_view text, size_t limit) {
  std::string result(text.substr(0, limit));
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  if (text.size() > limit) result += "...";
  return result;
}

}  // namespace virga::cluster
