// Two ranks on two simulated hosts take the mean of their gradients. On a real network the coroutine is the same; a
// virga::cluster::Job runs it there.
#include <cstdio>
#include <vector>

#include "virga/cluster/sim_job.h"
#include "virga/collective/allreduce/allreduce.h"

virga::Task<void> mean_of_gradients(virga::cluster::Comm& comm) {
  std::vector<float> gradient(1 << 20, static_cast<float>(comm.rank() + 1));  // all ones on rank 0, all twos on rank 1
  const virga::collective::AllreduceOptions mean(virga::collective::Reduction::kAverage, virga::DType::kFloat16);
  co_await virga::collective::allreduce(comm, comm.topology().world(), std::span(gradient), mean);
  std::printf("rank %d: mean %g after %.3f s of virtual time\n", comm.rank(), gradient[0],
              virga::to_seconds(comm.loop().now()));
}

int main() {
  virga::net::sim::Options world;
  world.ranks_per_host = {1, 1};  // joined at 1 Gbit/s
  virga::cluster::SimJob(world).run_or_throw(mean_of_gradients);
}
