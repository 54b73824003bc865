#include "virga/torch/evaluate.h"

#include <algorithm>
#include <numeric>
#include <torch/torch.h>

#include "virga/collective/allreduce/allreduce.h"
#include "virga/pattern/shards.h"
#include "virga/torch/batch_loader.h"

namespace virga::train {
namespace {

constexpr int64_t kBatch = 100;

int64_t count_right(Model& model, const data::Dataset& dataset, int64_t begin, int64_t end) {
  torch::NoGradGuard no_grad;
  const BatchLoader loader(dataset, model.input());
  int64_t right = 0;
  for (int64_t first = begin; first < end; first += kBatch) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(kBatch, end - first)));
    std::iota(indices.begin(), indices.end(), first);
    const Batch batch = loader.load(indices);
    right += model.forward(batch.images).argmax(1).eq(batch.labels).sum().item<int64_t>();
  }
  return right;
}

}  // namespace

double accuracy(Model& model, const data::Dataset& dataset, std::optional<int64_t> samples, cluster::Job& job) {
  const int64_t count = std::min(samples.value_or(dataset.count), dataset.count);
  if (count == 0) return 0;
  const pattern::Range mine = pattern::shard(static_cast<size_t>(count), job.world_size(), job.rank());
  model.eval();
  const int64_t right = count_right(model, dataset, static_cast<int64_t>(mine.begin), static_cast<int64_t>(mine.end));
  model.train();
  int64_t sum = right;
  job.run(
      [&](cluster::Comm& comm) { return collective::allreduce(comm, comm.topology().world(), std::span(&sum, 1)); });
  return static_cast<double>(sum) / static_cast<double>(count);
}

}  // namespace virga::train
