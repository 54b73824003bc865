#include "virga/cluster/exchange_table.h"

#include <algorithm>

#include "virga/cluster/rank_list.h"

namespace virga::cluster {
namespace {

constexpr size_t kMaxKey = 256;
constexpr size_t kMaxOpen = 64;

std::string name_of(const std::string& key) { return fmt::format("exchange '{}'", printable(key)); }

}  // namespace

std::optional<std::vector<std::string>> ExchangeTable::add(const std::string& key, Rank rank, std::string value,
                                                           Time deadline) {
  if (key.size() > kMaxKey || (open_.size() >= kMaxOpen && !open_.count(key))) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("rank {} opens {}: keys have at most {} bytes and {} exchanges can be open", rank,
                            name_of(key), kMaxKey, kMaxOpen),
                rank);
  }
  Exchange& exchange = open_[key];
  if (exchange.values.count(rank)) {
    throw Error(ErrorCode::kMismatch, fmt::format("rank {} gave two values for {}", rank, name_of(key)), rank);
  }
  exchange.bytes += value.size();
  if (exchange.bytes > Control::kMaxExchangeBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} has {} bytes with the value of rank {}; at most {} are allowed", name_of(key),
                            exchange.bytes, rank, Control::kMaxExchangeBytes),
                rank);
  }
  exchange.deadline = exchange.values.empty() ? deadline : std::min(exchange.deadline, deadline);
  exchange.values.emplace(rank, std::move(value));
  if (static_cast<int>(exchange.values.size()) < world_size_) return std::nullopt;
  std::vector<std::string> all;
  for (auto& [from, text] : exchange.values) all.push_back(std::move(text));
  open_.erase(key);
  return all;
}

std::optional<Abort> ExchangeTable::failure(const std::function<bool(Rank)>& has_left, Time now) const {
  for (const auto& [key, exchange] : open_) {
    const std::vector<Rank> absent = missing(exchange);
    const auto left = std::find_if(absent.begin(), absent.end(), has_left);
    Abort abort{.operation = name_of(key), .reporter = 0};
    if (left != absent.end()) {
      abort.code = ErrorCode::kMismatch;
      abort.culprit = *left;
      abort.reason = fmt::format("rank {} has left the job without taking part", *left);
      return abort;
    }
    if (now >= exchange.deadline) {
      abort.code = ErrorCode::kDeadlineExceeded;
      abort.culprit = absent.front();
      abort.reason = fmt::format("the deadline has passed and {} gave no value", name_ranks(absent));
      return abort;
    }
  }
  return std::nullopt;
}

std::vector<Rank> ExchangeTable::missing(const Exchange& exchange) const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < world_size_; ++rank) {
    if (!exchange.values.count(rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace virga::cluster
