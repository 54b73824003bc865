#pragma once

#include <optional>
#include <string>
#include <vector>

#include "virga/cluster/control.h"

namespace virga::cluster {

// In what the ranks differ, if they do: "rank 2 has strategy=topk, ranks {0, 1} have
// strategy=hitopk". members[r] is rank r.
std::optional<std::string> fingerprint_difference(const std::vector<MemberInfo>& members);

}  // namespace virga::cluster
