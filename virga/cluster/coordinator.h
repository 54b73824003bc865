#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "virga/cluster/control.h"
#include "virga/cluster/exchange_table.h"
#include "virga/cluster/verdict.h"

namespace virga::cluster {

namespace wire {
class FromCoordinator;
class Hello;
class ToCoordinator;
}  // namespace wire

// What rank 0 decides for the job: who has come, who is lost, whom to blame. It knows no network
// and no clock: streams are numbers, messages go out through the outlet, and time comes in with
// every call. Control's thread only.
class Coordinator {
 public:
  using LinkId = uint64_t;
  // Rank 0's own member, which needs no stream.
  static constexpr LinkId kLocal = 0;

  struct Outlet {
    std::function<void(LinkId, const wire::FromCoordinator&)> send;
    std::function<void(LinkId)> close;  // after what was sent
  };

  Coordinator(const ControlOptions& options, Outlet outlet);

  void opened(LinkId link, Time now);
  void receive(LinkId link, const wire::ToCoordinator& message, Time now);
  void closed(LinkId link, Time now);
  // To be called several times per heartbeat.
  void tick(Time now);

  // Rank 0 leaves: if the meeting is still on, it fails.
  void end_meeting();
  // Whether nobody needs the server any more.
  bool deserted() const;
  // Tells those who are still there that rank 0 leaves.
  void say_goodbye();

 private:
  enum class Phase { kMeeting, kRunning, kAborted };
  enum class State { kAbsent, kPresent, kLeft, kLost };
  struct Member {
    State state = State::kAbsent;
    LinkId link = 0;
    MemberInfo info;
    Time last_heard{0};
  };
  struct Link {
    Time opened_at{0};
    Rank rank = -1;
  };

  void greet(LinkId link, const wire::Hello& hello, Time now);
  void note_told(const wire::Hello& hello);
  std::optional<std::string> reason_to_refuse(const wire::Hello& hello) const;
  void check_job(const wire::Hello& hello) const;
  void join(LinkId link, const wire::Hello& hello, Time now);
  void refuse(LinkId link, const std::string& reason);
  void welcome_all();
  void check_meeting(Time now);
  void hear(Rank rank, const wire::ToCoordinator& message, Time now);
  void take_report(Rank rank, Abort report, Time now);
  void take_value(Rank rank, const wire::ToCoordinator& message, Time now);
  void take_leave(Rank rank);
  void lose(Rank rank, const std::string& how);
  void check_silence(Time now);
  void check_verdict(Time now);
  void check_exchanges(Time now);
  void drop_strangers(Time now);
  void beat(Time now);
  void abort(Abort abort);
  void fail_meeting(ErrorCode code, const std::string& reason, Rank culprit = -1);
  void send_all(const wire::FromCoordinator& message);
  void forget(LinkId link);
  std::vector<Rank> missing() const;
  std::string describe(Rank rank) const;

  const ControlOptions options_;
  const Outlet outlet_;
  Phase phase_ = Phase::kMeeting;
  std::map<LinkId, Link> links_;
  std::vector<Member> members_;
  std::optional<Abort> abort_;

  std::optional<Time> first_came_at_;
  Time meeting_deadline_ = Time::max();
  Time next_progress_{0};
  Time next_beat_{0};
  Time last_tick_ = Time::max();     // none yet
  bool expects_latecomers_ = false;  // ranks on their way ought to hear why the meeting failed
  Verdict verdict_;
  ExchangeTable exchanges_;
};

}  // namespace virga::cluster
