#pragma once

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "virga/net/sim/world.h"
#include "virga/net/transport.h"
#include "virga/net/ucx/transport.h"
#include "virga/runtime/loop.h"
#include "virga/runtime/task_group.h"

namespace virga::net::contract {

using namespace std::chrono_literals;

// Some ranks of one job in this process, on one loop, joined by whichever transport is under test.
class World {
 public:
  virtual ~World() = default;
  virtual Loop& loop() = 0;
  virtual int size() const = 0;
  virtual Transport& at(Rank rank) = 0;

  // Runs the body once for every rank, all at the same time, and waits for all.
  void run(const std::function<Task<void>(Transport&)>& body) {
    std::vector<Task<void>> tasks;
    for (Rank rank = 0; rank < size(); ++rank) tasks.push_back(body(at(rank)));
    loop().run(when_all(std::move(tasks)));
  }
  void run(Task<void> task) { loop().run(std::move(task)); }
  // Runs the loop for a time, so that whatever is under way arrives.
  void pass(Duration time) { loop().run(wait(loop().now() + time)); }

 private:
  static Task<void> wait(Time until) { co_await sleep_until(until); }
};

class SimWorld final : public World {
 public:
  SimWorld(std::vector<int> ranks_per_host, Mailbox::Limits limits)
      : loop_(clock_), world_(loop_, options(std::move(ranks_per_host), limits)) {}
  Loop& loop() override { return loop_; }
  int size() const override { return world_.size(); }
  Transport& at(Rank rank) override { return world_.transport(rank); }

 private:
  static sim::Options options(std::vector<int> ranks_per_host, Mailbox::Limits limits) {
    sim::Options options{std::move(ranks_per_host)};
    options.limits = limits;
    return options;
  }

  VirtualClock clock_;
  Loop loop_;
  sim::World world_;
};

class UcxWorld final : public World {
 public:
  UcxWorld(const std::vector<int>& ranks_per_host, Mailbox::Limits limits) : loop_(clock_) {
    std::vector<int> hosts;
    for (size_t host = 0; host < ranks_per_host.size(); ++host) {
      hosts.insert(hosts.end(), ranks_per_host[host], static_cast<int>(host));
    }
    const int size = static_cast<int>(hosts.size());
    for (Rank rank = 0; rank < size; ++rank) {
      ucx::UcxTransport::Options options(rank, size, "lo");
      options.limits = limits;
      transports_.push_back(std::make_unique<ucx::UcxTransport>(loop_, options));
    }
    for (Rank a = 0; a < size; ++a) {
      for (Rank b = 0; b < size; ++b) {
        transports_[a]->connect(b, transports_[b]->address(), hosts[a] == hosts[b]);
      }
    }
  }
  ~UcxWorld() override {
    std::vector<ucx::UcxTransport*> all;
    for (const auto& transport : transports_) all.push_back(transport.get());
    ucx::UcxTransport::leave_together(all);
  }
  Loop& loop() override { return loop_; }
  int size() const override { return static_cast<int>(transports_.size()); }
  Transport& at(Rank rank) override { return *transports_[rank]; }

 private:
  SteadyClock clock_;
  Loop loop_;
  std::vector<std::unique_ptr<ucx::UcxTransport>> transports_;
};

// Every way that two ranks can be joined.
struct Kind {
  std::string name;
  bool simulated;
  std::vector<int> ranks_per_host;

  std::unique_ptr<World> make(Mailbox::Limits limits = {}) const {
    if (simulated) return std::make_unique<SimWorld>(ranks_per_host, limits);
    return std::make_unique<UcxWorld>(ranks_per_host, limits);
  }
};
inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

// A test that must end: a hang kills the process and so fails.
class Contract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { alarm(60); }
  void TearDown() override { alarm(0); }
};

inline const auto kEveryKind = ::testing::Values(
    Kind{"sim_inside", true, {3}}, Kind{"sim_between", true, {1, 1, 1}}, Kind{"sim_mixed", true, {2, 1}},
    Kind{"ucx_inside", false, {3}}, Kind{"ucx_between", false, {1, 1, 1}}, Kind{"ucx_mixed", false, {2, 1}});
inline std::string kind_name(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }

// A message's address, for tests that do not care about the rest.
inline Header header_of(OpNumber operation, uint64_t chunk, Rank source) {
  Header header;
  header.kind = OpKind::kAllgather;
  header.operation = operation;
  header.chunk = chunk;
  header.source = source;
  return header;
}

inline std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::byte& byte : data) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
  return data;
}

inline Buffer buffer_of(std::vector<std::byte>& data) { return {data.data(), data.size()}; }
inline ConstBuffer buffer_of(const std::vector<std::byte>& data) { return {data.data(), data.size()}; }

// Waits up to five seconds (of the world's clock).
inline Task<void> finish_soon(Transport& transport, TransferPtr transfer, Duration limit = 5s) {
  CancelScope scope;
  const Deadline deadline = Deadline::after(transport.loop().clock(), limit);
  co_await finish(transport, std::move(transfer), deadline, scope);
}

// The error with which a task ends; kNone-like nullopt when it ends well.
inline Task<std::optional<Error>> error_of(Task<void> task) {
  std::optional<Error> caught;
  try {
    co_await std::move(task);
  } catch (const Error& error) {
    caught = error;
  }
  co_return caught;
}

}  // namespace virga::net::contract
