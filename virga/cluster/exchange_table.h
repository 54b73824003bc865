#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "virga/cluster/control.h"

namespace virga::cluster {

// Rank 0's side of Control::exchange: the values that have come for each key.
class ExchangeTable {
 public:
  explicit ExchangeTable(int world_size) : world_size_(world_size) {}

  // Adds a value. Returns all values, in rank order, if it was the last one; the key is then free
  // again. Throws kMismatch or kResourceExhausted, blaming the rank.
  std::optional<std::vector<std::string>> add(const std::string& key, Rank rank, std::string value, Time deadline);

  // Why an exchange can't end well any more: a deadline has passed, or it waits for a rank that has
  // left.
  std::optional<Abort> failure(const std::function<bool(Rank)>& has_left, Time now) const;

 private:
  struct Exchange {
    std::map<Rank, std::string> values;
    size_t bytes = 0;
    Time deadline{0};
  };
  std::vector<Rank> missing(const Exchange& exchange) const;

  const int world_size_;
  std::map<std::string, Exchange> open_;
};

}  // namespace virga::cluster
