#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "virga/base/ids.h"

namespace virga::cluster {

// "rank 3", or "ranks {1, 3}"; of more than 16 only the first are named.
std::string name_ranks(const std::vector<Rank>& ranks);
// "{1, 3}", as above.
std::string list_ranks(const std::vector<Rank>& ranks);

// Text from elsewhere, made fit for a message: at most `limit` bytes, control characters as '?'.
std::string printable(std::string_view text, size_t limit = 200);

}  // namespace virga::cluster
