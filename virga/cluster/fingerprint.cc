#include "virga/cluster/fingerprint.h"

#include <algorithm>
#include <map>

#include "virga/cluster/rank_list.h"

namespace virga::cluster {
namespace {

using RanksByValue = std::map<std::string, std::vector<Rank>>;

std::string setting_of(const MemberInfo& member, const std::string& name) {
  for (const Setting& setting : member.fingerprint) {
    if (setting.name == name) return name + "=" + setting.value;
  }
  return "no " + name;
}

// The names in the order in which they first appear.
std::vector<std::string> all_names(const std::vector<MemberInfo>& members) {
  std::vector<std::string> names;
  for (const MemberInfo& member : members) {
    for (const Setting& setting : member.fingerprint) {
      if (std::find(names.begin(), names.end(), setting.name) == names.end()) {
        names.push_back(setting.name);
      }
    }
  }
  return names;
}

// The smallest party first: it is the likely mistake.
std::string describe(const RanksByValue& parties) {
  std::vector<RanksByValue::const_iterator> order;
  for (auto party = parties.begin(); party != parties.end(); ++party) order.push_back(party);
  std::stable_sort(order.begin(), order.end(), [](auto a, auto b) { return a->second.size() < b->second.size(); });
  std::string text;
  for (const auto& party : order) {
    if (!text.empty()) text += ", ";
    const bool one = party->second.size() == 1;
    text += fmt::format("{} {} {}", name_ranks(party->second), one ? "has" : "have", printable(party->first));
  }
  return text;
}

}  // namespace

std::optional<std::string> fingerprint_difference(const std::vector<MemberInfo>& members) {
  std::string text;
  for (const std::string& name : all_names(members)) {
    RanksByValue parties;
    for (const MemberInfo& member : members) {
      parties[setting_of(member, name)].push_back(member.rank);
    }
    if (parties.size() == 1) continue;
    if (!text.empty()) text += "; ";
    text += describe(parties);
  }
  if (text.empty()) return std::nullopt;
  return text;
}

}  // namespace virga::cluster
