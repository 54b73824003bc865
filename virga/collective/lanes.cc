#include "virga/collective/lanes.h"

#include <memory>

#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

struct Turnstile {
  std::function<Task<void>(size_t)> lane;
  size_t next = 0;
  size_t count = 0;
};

Task<void> walk(std::shared_ptr<Turnstile> turnstile, CancelScope& scope) {
  while (turnstile->next < turnstile->count) {
    scope.throw_if_cancelled();
    const size_t index = turnstile->next++;
    co_await turnstile->lane(index);
  }
}

Task<void> turn_around(const std::function<Task<void>(size_t)>& there, const std::function<Task<void>(size_t)>& back,
                       size_t i) {
  co_await there(i);
  co_await back(i);
}

}  // namespace

Task<void> run_lanes(size_t count, size_t width, CancelScope& scope, std::function<Task<void>(size_t)> lane) {
  auto turnstile = std::make_shared<Turnstile>();
  turnstile->lane = std::move(lane);
  turnstile->count = count;
  std::vector<Task<void>> walkers;
  for (size_t i = 0; i < std::min(width, count); ++i) walkers.push_back(walk(turnstile, scope));
  co_await when_all(std::move(walkers), &scope);
}

Task<void> run_there_and_back(size_t count, size_t slice_bytes, size_t lanes, int edges, bool leaf, CancelScope& scope,
                              std::function<Task<void>(size_t)> there, std::function<Task<void>(size_t)> back) {
  if (edges == 0 || leaf) {
    const size_t most = kMostUnderWay / std::max<size_t>(slice_bytes, 1);
    const size_t width = std::max(lanes, std::min(lanes * static_cast<size_t>(std::max(edges, 1)), most));
    co_await run_lanes(count, width, scope, [&](size_t i) { return turn_around(there, back, i); });
  } else {
    co_await when_both(run_lanes(count, lanes, scope, there), run_lanes(count, lanes, scope, back), &scope);
  }
}

}  // namespace virga::collective
