#include "virga/cluster/control.h"

#include <arpa/inet.h>
#include <atomic>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace virga::cluster {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ControlOptions options_of(int rank, int world_size, int port) {
  ControlOptions options;
  options.self.rank = options.self.local_rank = rank;
  options.self.host_identity = "h" + std::to_string(rank % 2);
  options.self.host_name = "node" + std::to_string(rank % 2);
  options.self.transport_address = std::string("\0address ", 9) + std::to_string(rank);
  options.self.fingerprint = {{"strategy", "hitopk"}, {"density", "0.01"}};
  options.world_size = options.local_world_size = world_size;
  options.rendezvous_host = "127.0.0.1";
  options.rendezvous_port = port;
  options.heartbeat_period = 50ms;
  options.heartbeat_timeout = 5s;
  options.meeting_timeout = 20s;
  options.leave_timeout = 5s;
  return options;
}

// What a call threw; a success is a failure of the test.
Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kInvalidArgument, "no error");
}

// Runs a call for every rank on a thread of its own.
void on_all(int count, const std::function<void(int)>& call) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) threads.emplace_back(call, rank);
  for (std::thread& thread : threads) thread.join();
}

// Ranks that are to meet at a free port. `change` alters the options of each.
using Ranks = std::vector<std::unique_ptr<Control>>;
Ranks make_ranks(
    int count, const std::function<void(ControlOptions&)>& change = [](ControlOptions&) {}) {
  Ranks ranks;
  int port = 0;
  for (int rank = 0; rank < count; ++rank) {
    ControlOptions options = options_of(rank, count, port);
    change(options);
    ranks.push_back(std::make_unique<Control>(options));
    port = ranks.front()->port();
  }
  return ranks;
}
// The errors with which their meetings end.
std::vector<Error> failed_meetings(Ranks& ranks) {
  std::vector<Error> errors(ranks.size(), Error(ErrorCode::kInvalidArgument, "none"));
  on_all(static_cast<int>(ranks.size()), [&](int i) { errors[i] = error_of([&] { ranks[i]->meet(); }); });
  return errors;
}
Ranks met_ranks(int count) {
  Ranks ranks = make_ranks(count);
  on_all(count, [&](int rank) { ranks[rank]->meet(); });
  return ranks;
}
// Destroys them side by side, as processes would end.
void part(Ranks& ranks) {
  on_all(static_cast<int>(ranks.size()), [&](int rank) { ranks[rank].reset(); });
}

// Hears aborts.
class Listener {
 public:
  explicit Listener(Control& control) {
    control.set_abort_listener([this](const Abort& abort) {
      if (++count_ == 1) promise_.set_value(abort);
    });
  }
  Abort wait() {
    auto future = promise_.get_future();
    if (future.wait_for(20s) == std::future_status::ready) return future.get();
    ADD_FAILURE() << "no abort";
    return {};
  }
  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
  std::promise<Abort> promise_;
};

// A TCP socket of somebody else at 127.0.0.1.
class Squatter {
 public:
  Squatter() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(socket_, 16), 0);
    socklen_t length = sizeof address;
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
  }
  ~Squatter() { close(socket_); }
  int port = 0;

 private:
  const int socket_;
};

// --- The meeting ---

TEST(Control, AllRanksMeetAndKnowEachOther) {
  for (int count : {1, 2, 5}) {
    Ranks ranks = make_ranks(count);
    on_all(count, [&](int self) {
      const std::vector<MemberInfo> members = ranks[self]->meet();
      ASSERT_EQ(members.size(), static_cast<size_t>(count));
      for (int rank = 0; rank < count; ++rank) {
        const MemberInfo expected = options_of(rank, count, 0).self;
        EXPECT_EQ(members[rank].rank, rank);
        EXPECT_EQ(members[rank].local_rank, expected.local_rank);
        EXPECT_EQ(members[rank].host_identity, expected.host_identity);
        EXPECT_EQ(members[rank].host_name, expected.host_name);
        EXPECT_EQ(members[rank].transport_address, expected.transport_address);
        EXPECT_EQ(members[rank].fingerprint.size(), 2u);
      }
    });
    part(ranks);
  }
}

TEST(Control, RanksMayComeBeforeRank0) {
  const int port = Squatter().port;  // free again
  auto late = std::async(std::launch::async, [&] {
    Control control(options_of(1, 2, port));
    EXPECT_EQ(control.meet().size(), 2u);
  });
  EXPECT_EQ(late.wait_for(300ms), std::future_status::timeout);
  Control control(options_of(0, 2, port));
  EXPECT_EQ(control.meet().size(), 2u);
  late.get();
}

TEST(Control, AMissingRankIsNamedOnEveryRankThatCame) {
  Ranks ranks = make_ranks(4, [](ControlOptions& options) { options.meeting_timeout = 3s; });
  ranks.erase(ranks.begin() + 2);
  for (const Error& error : failed_meetings(ranks)) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(error.culprit(), 2);
    EXPECT_THAT(error.what(), HasSubstr("rank 2 of 4 did not come within 3 s"));
  }
  part(ranks);
}

TEST(Control, ProgressNamesWhomTheMeetingWaitsFor) {
  std::promise<std::string> told[2];
  const auto change = [&](ControlOptions& options) {
    options.progress_period = 100ms;
    options.on_progress = [&, first = true, rank = options.self.rank](const std::string& text) mutable {
      if (std::exchange(first, false)) told[rank].set_value(text);
    };
  };
  const int port = Squatter().port;
  ControlOptions lonely = options_of(1, 2, port);
  change(lonely);
  Control seeker(lonely);
  auto meeting = std::async(std::launch::async, [&] { seeker.meet(); });
  const std::string place = "127.0.0.1:" + std::to_string(port);
  EXPECT_THAT(told[1].get_future().get(), AllOf(HasSubstr("rank 1 still looks for rank 0 at " + place + " after"),
                                                HasSubstr("Connection refused (nothing listens there yet)")));
  {
    Control rank0(options_of(0, 2, port));
    rank0.meet();
    meeting.get();
    seeker.leave();
  }

  ControlOptions waiting = options_of(0, 2, 0);
  change(waiting);
  Control waiter(waiting);
  auto other = std::async(std::launch::async, [&] { waiter.meet(); });
  EXPECT_THAT(told[0].get_future().get(), HasSubstr("still waiting for ranks {1} of 2 after"));
  Control(options_of(1, 2, waiter.port())).meet();
  other.get();
}

TEST(Control, ARankThatComesTwiceEndsTheMeetingForAll) {
  Ranks ranks = make_ranks(3, [](ControlOptions& options) {
    if (options.self.rank == 2) options.self.rank = 1;
    options.leave_timeout = 200ms;
  });
  for (const Error& error : failed_meetings(ranks)) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 came twice, from host node"));
  }
  part(ranks);
}

TEST(Control, DifferentWorldSizesEndTheMeetingForAll) {
  Ranks ranks = make_ranks(3, [](ControlOptions& options) {
    if (options.self.rank == 2) options.world_size = options.local_world_size = 4;
  });
  for (const Error& error : failed_meetings(ranks)) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank 2 has a world size of 4, rank 0 of 3"));
  }
  part(ranks);
}

TEST(Control, DifferentFingerprintsAreNamedOnAllRanks) {
  Ranks ranks = make_ranks(4, [](ControlOptions& options) {
    if (options.self.rank == 2) options.self.fingerprint[0].value = "topk";
  });
  for (const Error& error : failed_meetings(ranks)) {
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank 2 has strategy=topk, ranks {0, 1, 3} have strategy=hitopk"));
    EXPECT_THAT(error.what(), Not(HasSubstr("density")));
  }
  part(ranks);
}

TEST(Control, ALatecomerHearsWhyTheMeetingFailed) {
  Ranks ranks = make_ranks(3, [](ControlOptions& options) {
    if (options.self.rank == 1) options.epoch = 7;
  });
  Ranks first;
  first.push_back(std::move(ranks[0]));
  first.push_back(std::move(ranks[1]));
  for (const Error& error : failed_meetings(first)) EXPECT_THAT(error.what(), HasSubstr("rank 1 is in epoch 7"));
  auto leaving = std::async(std::launch::async, [&] { part(first); });
  const Error error = error_of([&] { ranks[2]->meet(); });
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_THAT(error.what(), HasSubstr("rank 1 is in epoch 7, rank 0 in epoch 1"));
  ranks[2].reset();
  leaving.get();
}

TEST(Control, ARank0ThatLeavesDuringTheMeetingIsNamed) {
  std::promise<void> came;
  Ranks ranks = make_ranks(3, [&](ControlOptions& options) {
    options.progress_period = 50ms;
    if (options.self.rank != 1) return;
    options.on_progress = [&, first = true](const std::string& text) mutable {
      if (text.find("still waiting for ranks {0, 2}") != text.npos && std::exchange(first, false)) came.set_value();
    };
  });
  auto meeting = std::async(std::launch::async, [&] {
    const Error error = error_of([&] { ranks[1]->meet(); });
    ranks[1].reset();
    return error;
  });
  came.get_future().get();
  ranks[0].reset();
  const Error error = meeting.get();
  EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
  EXPECT_EQ(error.culprit(), 0);
  EXPECT_THAT(error.what(), HasSubstr("left before all ranks had come"));
}

// --- Bad meeting places ---

TEST(Control, APortInUseIsRefusedAtOnce) {
  Squatter squatter;
  const Error error = error_of([&] { Control control(options_of(0, 2, squatter.port)); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("port is in use"), HasSubstr("127.0.0.1:" + std::to_string(squatter.port)),
                                  HasSubstr("MASTER_PORT")));
}

TEST(Control, TwoJobsCantShareAPort) {
  Control first(options_of(0, 2, 0));
  const Error error = error_of([&] { Control second(options_of(0, 2, first.port())); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
}

TEST(Control, AnotherProgramAtTheMeetingPlaceIsNamedAtTheDeadline) {
  Squatter squatter;
  ControlOptions options = options_of(1, 2, squatter.port);
  options.meeting_timeout = 500ms;
  Control control(options);
  const Error error = error_of([&] { control.meet(); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(error.what(), HasSubstr("something listens there but does not answer"));
}

TEST(Control, AnotherGrpcServerAtTheMeetingPlaceIsRefusedAtOnce) {
  grpc::CallbackGenericService nothing;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&nothing);
  const auto server = builder.BuildAndStart();
  Control control(options_of(1, 2, port));
  const Error error = error_of([&] { control.meet(); });
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_THAT(error.what(), HasSubstr("another gRPC server"));
}

TEST(Control, ARankOfAnotherJobIsRefusedAloneAndTheJobGoesOn) {
  Ranks ranks = make_ranks(2);
  ControlOptions options = options_of(1, 2, ranks[0]->port());
  options.job = "other";
  Control before(options);
  auto meeting = std::async(std::launch::async, [&] { ranks[0]->meet(); });
  Error error = error_of([&] { before.meet(); });
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_THAT(error.what(), HasSubstr("another job ('', this one is 'other')"));
  ranks[1]->meet();
  meeting.get();

  Control after(options_of(1, 2, ranks[0]->port()));
  error = error_of([&] { after.meet(); });
  EXPECT_EQ(error.code(), ErrorCode::kMismatch);
  EXPECT_THAT(error.what(), HasSubstr("has met already"));
  on_all(2, [&](int rank) { EXPECT_EQ(ranks[rank]->exchange("k", "v", 10s).size(), 2u); });
  part(ranks);
}

TEST(Control, ALoopbackAddressCantJoinHosts) {
  for (const char* host : {"127.0.0.1", "127.0.1.1", "::1", "localhost"}) {
    for (int rank : {0, 1}) {
      ControlOptions options = options_of(rank, 4, 29501);
      options.local_world_size = 2;
      options.rendezvous_host = host;
      const Error error = error_of([&] { Control(options).meet(); });
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(std::string("'") + host + "' resolves to the loopback address"),
                                      HasSubstr("MASTER_ADDR"), HasSubstr("only 2 of 4")));
    }
  }
}

TEST(Control, AnAddressOfAnotherMachineIsRefused) {
  ControlOptions options = options_of(0, 2, 29501);
  options.rendezvous_host = "192.0.2.1";  // reserved for documentation
  const Error error = error_of([&] { Control control(options); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.what(), HasSubstr("192.0.2.1:29501 (192.0.2.1) is none of this machine's"));
}

TEST(Control, AnUnknownHostIsNamed) {
  for (int rank : {0, 1}) {
    ControlOptions options = options_of(rank, 2, 29501);
    options.rendezvous_host = "no..host";
    options.meeting_timeout = 300ms;
    const Error error = error_of([&] { Control(options).meet(); });
    EXPECT_EQ(error.code(), rank == 0 ? ErrorCode::kUnavailable : ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(error.what(), HasSubstr("'no..host' can't be resolved"));
  }
}

TEST(Control, ListensAtTheRendezvousAddressOnly) {
  Control control(options_of(0, 2, 0));
  ControlOptions elsewhere = options_of(1, 2, control.port());
  elsewhere.rendezvous_host = "127.0.0.2";
  elsewhere.meeting_timeout = 300ms;
  Control other(elsewhere);
  EXPECT_THAT(error_of([&] { other.meet(); }).what(), HasSubstr("Connection refused"));
}

TEST(Control, RefusesOptionsThatCantBe) {
  const auto code_with = [](const std::function<void(ControlOptions&)>& change) {
    ControlOptions options = options_of(1, 2, 29501);
    change(options);
    return error_of([&] { Control control(options); }).code();
  };
  EXPECT_EQ(code_with([](auto& o) { o.self.rank = 2; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& o) { o.self.rank = -1; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& o) { o.world_size = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& o) { o.rendezvous_port = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& o) { o.rendezvous_port = 65536; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& o) { o.rendezvous_host = ""; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& o) { o.heartbeat_period = 0s; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_with([](auto& o) { o.heartbeat_timeout = o.heartbeat_period; }), ErrorCode::kInvalidArgument);
}

// --- The running job ---

TEST(Control, TheFirstReportReachesEveryRankOnce) {
  Ranks ranks = met_ranks(3);
  std::vector<std::unique_ptr<Listener>> listeners;
  for (auto& rank : ranks) listeners.push_back(std::make_unique<Listener>(*rank));
  on_all(3, [&](int rank) {
    ranks[rank]->report({.code = ErrorCode::kPeerLost,
                         .operation = "allreduce 12",
                         .culprit = (rank + 1) % 3,
                         .reason = "connection reset"});
  });
  const Abort first = listeners[0]->wait();
  EXPECT_EQ(first.epoch, 1u);
  EXPECT_EQ(first.code, ErrorCode::kPeerLost);
  EXPECT_EQ(first.operation, "allreduce 12");
  EXPECT_EQ(first.reason, "connection reset");
  EXPECT_EQ(first.culprit, (first.reporter + 1) % 3);
  for (int rank : {1, 2}) {
    const Abort same = listeners[rank]->wait();
    EXPECT_EQ(same.culprit, first.culprit);
    EXPECT_EQ(same.reporter, first.reporter);
  }
  on_all(3, [&](int rank) { ranks[rank]->leave(); });
  for (auto& listener : listeners) EXPECT_EQ(listener->count(), 1);
  Listener late(*ranks[0]);
  EXPECT_EQ(late.wait().culprit, first.culprit);
  part(ranks);
}

TEST(Control, ADeadlineReportPassesOnTheBlame) {
  Ranks ranks = met_ranks(3);
  Listener listener(*ranks[0]);
  // 0 waits for 1, who waits for 2.
  ranks[0]->report({.code = ErrorCode::kDeadlineExceeded, .operation = "a", .culprit = 1, .reason = "too late"});
  ranks[1]->report({.code = ErrorCode::kDeadlineExceeded, .operation = "a", .culprit = 2, .reason = "too late"});
  const Abort abort = listener.wait();
  EXPECT_EQ(abort.culprit, 2);
  EXPECT_EQ(abort.reporter, 1);
  part(ranks);
}

TEST(Control, AJobOfOneRankAbortsToo) {
  Ranks ranks = met_ranks(1);
  Listener listener(*ranks[0]);
  ranks[0]->report({.code = ErrorCode::kNonFinite, .operation = {}, .reason = "NaN"});
  EXPECT_EQ(listener.wait().reason, "NaN");
}

TEST(Control, AnExceptionThatUnwindsARankIsToldToTheOthers) {
  Ranks ranks = met_ranks(2);
  Listener listener(*ranks[0]);
  try {
    const std::unique_ptr<Control> doomed = [&] { return std::move(ranks[1]); }();
    throw std::runtime_error("out of disk");
  } catch (const std::exception&) {
  }
  const Abort abort = listener.wait();
  EXPECT_EQ(abort.culprit, 1);
  EXPECT_THAT(abort.reason, HasSubstr("rank 1 (host node1) failed"));
}

TEST(Control, RanksThatLeaveEarlyAreNoFailure) {
  for (int first : {0, 1, 2}) {
    Ranks ranks = met_ranks(3);
    std::vector<std::unique_ptr<Listener>> listeners;
    for (auto& rank : ranks) listeners.push_back(std::make_unique<Listener>(*rank));
    auto leaving = std::async(std::launch::async, [&] { ranks[first]->leave(); });
    if (first != 0) leaving.get();
    on_all(3, [&](int rank) {
      if (rank != first) ranks[rank]->leave();
    });
    if (first == 0) leaving.get();
    for (auto& listener : listeners) EXPECT_EQ(listener->count(), 0);
    part(ranks);
  }
}

TEST(Control, Rank0LeavesAtLastWhoeverStays) {
  Ranks ranks = make_ranks(2, [](ControlOptions& options) { options.leave_timeout = 200ms; });
  on_all(2, [&](int rank) { ranks[rank]->meet(); });
  Listener listener(*ranks[1]);
  ranks[0].reset();
  EXPECT_EQ(error_of([&] { ranks[1]->exchange("k", "v", 5s); }).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(listener.count(), 0);
  ranks[1]->report({.code = ErrorCode::kAborted, .operation = {}, .reason = "alone"});
  EXPECT_EQ(listener.wait().reason, "alone");
}

// --- Exchange ---

TEST(Control, ExchangeGivesAllValuesInRankOrder) {
  for (int count : {1, 4}) {
    Ranks ranks = met_ranks(count);
    on_all(count, [&](int rank) {
      for (int round = 0; round < 20; ++round) {
        const std::string value = std::string(static_cast<size_t>(rank), '\0') + std::to_string(round);
        const auto values = ranks[rank]->exchange(round % 2 ? "odd" : "even", value, 10s);
        ASSERT_EQ(values.size(), static_cast<size_t>(count));
        for (int from = 0; from < count; ++from) {
          EXPECT_EQ(values[from], std::string(static_cast<size_t>(from), '\0') + std::to_string(round));
        }
      }
    });
    part(ranks);
  }
}

TEST(Control, ExchangeCarriesLargeValuesUpToItsBound) {
  Ranks ranks = met_ranks(2);
  on_all(2, [&](int rank) {
    const std::string value(rank == 0 ? Control::kMaxExchangeBytes : 0, 'x');
    EXPECT_EQ(ranks[rank]->exchange("large", value, 20s)[0].size(), Control::kMaxExchangeBytes);
  });
  EXPECT_EQ(error_of([&] { ranks[0]->exchange("k", std::string(Control::kMaxExchangeBytes + 1, 'x'), 1s); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { ranks[0]->exchange(std::string(257, 'k'), "", 1s); }).code(), ErrorCode::kInvalidArgument);
  on_all(2, [&](int rank) {
    const Error error = error_of(
        [&] { ranks[rank]->exchange("too large", std::string(Control::kMaxExchangeBytes / 2 + 1, 'x'), 20s); });
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  });
  part(ranks);
}

TEST(Control, AnExchangeWithoutSomebodyEndsForAllWithHisName) {
  Ranks ranks = met_ranks(3);
  Listener listener(*ranks[2]);
  on_all(2, [&](int rank) {
    const Error error = error_of([&] { ranks[rank]->exchange("plan", "v", 300ms); });
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(error.culprit(), 2);
    EXPECT_THAT(error.what(), HasSubstr("exchange 'plan': the deadline has passed and rank 2 gave no value"));
  });
  EXPECT_EQ(listener.wait().culprit, 2);
  EXPECT_EQ(error_of([&] { ranks[2]->exchange("plan", "v", 5s); }).culprit(), 2);
  part(ranks);
}

TEST(Control, AnExchangeWithoutSomebodyWhoLeftEndsAtOnce) {
  Ranks ranks = met_ranks(3);
  ranks[1]->leave();
  for (int rank : {0, 2}) {
    const Error error = error_of([&] { ranks[rank]->exchange("plan", "v", 60s); });
    EXPECT_EQ(error.code(), ErrorCode::kMismatch);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has left the job"));
  }
  EXPECT_EQ(error_of([&] { ranks[1]->exchange("plan", "v", 1s); }).code(), ErrorCode::kInvalidArgument);
  part(ranks);
}

TEST(Control, AnExchangeThatWaitsHearsOfAnAbort) {
  Ranks ranks = met_ranks(2);
  auto waiting = std::async(std::launch::async, [&] { return error_of([&] { ranks[0]->exchange("k", "v", 60s); }); });
  ranks[1]->report({.code = ErrorCode::kCorrupt, .operation = "load", .culprit = 1, .reason = "truncated dataset"});
  const Error error = waiting.get();
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(error.culprit(), 1);
  EXPECT_STREQ(error.what(), "load: truncated dataset");
  part(ranks);
}

}  // namespace
}  // namespace virga::cluster
