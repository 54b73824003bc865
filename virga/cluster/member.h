#pragma once

#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "virga/cluster/control.h"

namespace virga::cluster {

namespace wire {
class Abort;
class ExchangeResult;
class FromCoordinator;
class ToCoordinator;
class Welcome;
}  // namespace wire

// One rank's side of the control stream: what it waits for and when it gives up. Like the
// Coordinator it knows no network and no clock. Control's thread only; the futures are for other
// threads and always get a value or an Error.
class Member {
 public:
  using Members = std::vector<MemberInfo>;
  using Values = std::vector<std::string>;

  Member(const ControlOptions& options, std::function<void(const wire::ToCoordinator&)> send);

  // Begins to wait for the meeting.
  std::future<Members> meet(Time now);
  // A stream to rank 0 is open: says hello. The future is ready when rank 0 has answered or the
  // stream has broken.
  std::future<void> greet(Time now);
  // Why rank 0 has not been found yet.
  void note_trouble(const std::string& text) { trouble_ = text; }
  // The meeting can't take place for this rank.
  void give_up(const Error& error);

  void receive(const wire::FromCoordinator& message, Time now);
  void disconnected(const std::string& how);
  void tick(Time now);

  std::future<Values> exchange(const std::string& key, std::string value, Duration timeout, Time now);
  void report(Abort abort);
  void set_listener(std::function<void(const Abort&)> listener);
  // Says goodbye; the future is ready when rank 0 has answered, is lost, or leave_timeout has
  // passed.
  std::future<void> leave(Time now);

  // No stream has been answered yet, and there is still time for one.
  bool is_seeking() const { return meeting_ && line_ == Line::kNone; }
  bool has_met() const { return phase_ == Phase::kRunning; }

 private:
  enum class Phase { kMeeting, kRunning, kFailed };
  enum class Line { kNone, kGreeting, kOpen, kLost };  // the stream
  struct Waiting {
    std::promise<Values> promise;
    Time give_up_at;
  };

  void hear(const wire::FromCoordinator& message);
  void welcome(const wire::Welcome& message);
  void take_goodbye();
  void take_result(const wire::ExchangeResult& result);
  void lose_coordinator(const std::string& how);
  void fail_job(const Abort& abort);
  void check_meeting(Time now);
  void check_silence(Time now);
  void check_exchanges(Time now);
  void beat(Time now);
  void finish_greeting();
  void finish_leaving();
  std::string place() const;

  const ControlOptions options_;
  const std::function<void(const wire::ToCoordinator&)> send_;
  Phase phase_ = Phase::kMeeting;
  Line line_ = Line::kNone;
  bool coordinator_left_ = false;
  std::optional<Abort> abort_;
  std::function<void(const Abort&)> listener_;
  std::string trouble_;

  std::optional<std::promise<Members>> meeting_;
  std::optional<std::promise<void>> greeting_;
  std::optional<std::promise<void>> leaving_;
  std::map<std::string, Waiting> waiting_;

  Time met_at_{0};
  Time next_progress_{0};
  Time next_beat_{0};
  Time last_heard_{0};
  Time last_tick_ = Time::max();  // none yet
  Time leave_by_ = Time::max();
};

}  // namespace virga::cluster
