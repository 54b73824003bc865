// A host cut off from the other, before and in the middle of large messages: two network namespaces
// joined by a cable that is pulled. Both sides must end in time with an error that names the other.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "virga/runtime/task_group.h"

#include "contract/faults/crew.h"

namespace virga::net::faults {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDeadline = 2s;
constexpr Duration kGrace = 2s;
constexpr size_t kLarge = 48 << 20;  // takes some two seconds on this cable

bool shell(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

// Two namespaces with one cable of 200 Mbit/s between them.
class Cable {
 public:
  Cable() : name_(fmt::format("vrg{}h", getpid())) {
    made_ =
        shell(fmt::format("ip netns add {0}0 && ip netns add {0}1 && ip -n {0}0 link add e0 type "
                          "veth peer name e0 netns {0}1",
                          name_));
    for (int host = 0; made_ && host < 2; ++host) {
      made_ =
          shell(fmt::format("ip -n {0}{1} addr add 10.91.7.{2}/24 dev e0 && ip -n {0}{1} link set e0 up && "
                            "tc -n {0}{1} qdisc add dev e0 root tbf rate 200mbit burst 128kb latency 20ms",
                            name_, host, host + 1));
    }
    // The kernel takes its time to call a cable connected, and UCX uses no other.
    for (int host = 0; made_ && host < 2; ++host) {
      while (!shell(fmt::format("ip -n {}{} link show e0 | grep -q 'state UP'", name_, host))) usleep(10'000);
    }
  }
  ~Cable() {
    for (int host = 0; host < 2; ++host) shell(fmt::format("ip netns del {}{}", name_, host));
  }
  bool made() const { return made_; }
  void pull() { EXPECT_TRUE(shell(fmt::format("ip -n {}1 link set e0 down", name_))); }

  // Moves this process to a host; UCX looks for devices in /sys, which must be that host's.
  void enter(int host) const {
    const int file = open(fmt::format("/run/netns/{}{}", name_, host).c_str(), O_RDONLY | O_CLOEXEC);
    if (setns(file, CLONE_NEWNET) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || umount2("/sys", MNT_DETACH) != 0 ||
        mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0) {
      std::exit(3);
    }
    close(file);
  }

 private:
  const std::string name_;
  bool made_ = false;
};

class End {
 public:
  End(Seat& seat, bool mid_transfer) : seat_(seat), mid_transfer_(mid_transfer), peer_(1 - seat.transport.rank()) {}

  std::string run() {
    seat_.connect();
    seat_.loop.run(both_ways(0, 8, 20s));
    if (!report_.empty()) return report_;
    if (!mid_transfer_) wait_for_the_cut();
    seat_.loop.run(both_ways(1, kLarge, kDeadline));
    if (!failed_) report_ += "48 MB went through a cable that was pulled\n";
    return report_;
  }

 private:
  void wait_for_the_cut() {
    put_text(seat_.parent, "started");
    take_text(seat_.parent);
  }

  Task<void> both_ways(uint64_t chunk, size_t bytes, Duration limit) {
    std::vector<std::byte> in(bytes), out(bytes);
    std::vector<Task<void>> tasks;
    Transport& transport = seat_.transport;
    tasks.push_back(one_way(transport.receive(peer_, header_of(chunk, peer_), {in.data(), bytes}), limit));
    tasks.push_back(one_way(transport.send(peer_, header_of(chunk, 1 - peer_), {out.data(), bytes}), limit));
    if (mid_transfer_ && chunk == 1) put_text(seat_.parent, "started");
    co_await when_all(std::move(tasks));
  }

  Task<void> one_way(TransferPtr transfer, Duration limit) {
    CancelScope scope;
    const Time begin = seat_.loop.now();
    const Deadline deadline = Deadline::after(seat_.loop.clock(), limit);
    try {
      co_await finish(seat_.transport, transfer, deadline, scope);
    } catch (const Error& error) {
      failed_ = true;
      if (error.culprit() != peer_) report_ += fmt::format("blames {}: {}\n", error.culprit(), error.what());
    }
    if (seat_.loop.now() - begin > limit + kGrace) report_ += "too late\n";
  }

  Seat& seat_;
  const bool mid_transfer_;
  const Rank peer_;
  bool failed_ = false;
  std::string report_;
};

class CutOff : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Every, CutOff, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "MidTransfer" : "Before"; });

TEST_P(CutOff, BothSidesEndInTimeAndNameTheOther) {
  if (geteuid() != 0) GTEST_SKIP() << "making network namespaces needs root";
  alarm(60);
  Cable cable;
  ASSERT_TRUE(cable.made()) << "ip and tc are needed";
  Crew crew(
      2, false, "e0", [](Seat& seat) { return End(seat, GetParam()).run(); }, [&](Rank rank) { cable.enter(rank); });
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(crew.listen(rank), "started");
  cable.pull();
  if (!GetParam()) {
    for (Rank rank = 0; rank < 2; ++rank) crew.tell(rank, "pulled");
  }
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(crew.listen(rank), "report:") << "rank " << rank;
  alarm(0);
}

}  // namespace
}  // namespace virga::net::faults
