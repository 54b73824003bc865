#include "virga/runtime/worker.h"

#include <exception>
#include <pthread.h>

#include "virga/runtime/event.h"

namespace virga {
namespace {

// Memory moves at roughly 5-10 GB/s for these kernels, so 1 MiB is about 100-200 us.
constexpr size_t kInlineBytes = size_t{1} << 20;

}  // namespace

ThreadWorker::ThreadWorker(Loop& loop) : loop_(loop), thread_([this] { serve(); }) {
  pthread_setname_np(thread_.native_handle(), "virga-worker");
}

ThreadWorker::~ThreadWorker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool ThreadWorker::stays_on_loop(size_t bytes_touched) const { return bytes_touched < kInlineBytes; }

Task<void> ThreadWorker::run(size_t bytes_touched, std::function<void()> work) {
  if (stays_on_loop(bytes_touched)) {
    work();
    co_return;
  }
  Event done;
  std::exception_ptr error;
  enqueue([this, &done, &error, &work] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    loop_.post([&done] { done.set(); });
  });
  co_await done;
  if (error) std::rethrow_exception(error);
}

void ThreadWorker::enqueue(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void ThreadWorker::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace virga
