#include "virga/collective/common_start.h"

#include <array>

#include "virga/collective/allreduce/allreduce.h"
#include "virga/collective/broadcast/broadcast.h"
#include "virga/runtime/task_group.h"

namespace virga::collective {
namespace {

using cluster::Comm;
using cluster::Group;

constexpr int kExchanges = 10;  // with rank 0, of which the fastest counts

// Rank 0 tells its time whenever it is asked. Half of an exchange is over when it does, if both ways take as long
// (Cristian, "Probabilistic clock synchronization", 1989): the shorter the exchange, the less can be wrong with that.
Task<Duration> ahead_of_first(Comm& comm, Rank rank) {
  const Group pair({0, rank});
  Duration ahead{}, fastest = Duration::max();
  for (int i = 0; i < kExchanges; ++i) {
    int64_t time = 0;
    const Time begin = comm.loop().now();
    co_await broadcast(comm, pair, rank, std::span(&time, 1));
    time = comm.loop().now().count();
    co_await broadcast(comm, pair, 0, std::span(&time, 1));
    const Time end = comm.loop().now();
    if (end - begin >= fastest) continue;
    fastest = end - begin;
    ahead = begin + fastest / 2 - Time(time);
  }
  co_return ahead;
}

Task<void> answer(Comm& comm, Rank rank) { co_await ahead_of_first(comm, rank); }

}  // namespace

Task<void> CommonStart::synchronize(Comm& comm) {
  if (comm.rank() == 0) {
    TaskGroup others;
    for (Rank rank = 1; rank < comm.topology().world_size(); ++rank) others.start(answer(comm, rank));
    co_await others.join();
  } else {
    ahead_ = co_await ahead_of_first(comm, comm.rank());
  }
  co_await wait(comm);  // a rehearsal, for how long that takes
}

Task<Time> CommonStart::wait(Comm& comm) {
  const Time begin = comm.loop().now();
  std::array<double, 2> latest = {to_seconds(begin - ahead_), patience_seconds_};
  co_await allreduce(comm, comm.topology().world(), std::span<double>(latest), Reduction::kMax);
  patience_seconds_ = to_seconds(comm.loop().now() - begin);
  const Time start = from_seconds(latest[0] + 2 * latest[1]) + ahead_;
  const Loop::Awake awake(comm.loop());
  co_await sleep_until(start);
  co_return start;
}

}  // namespace virga::collective
