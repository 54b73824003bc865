#include "virga/cluster/member.h"

#include "virga/cluster/control.pb.h"
#include "virga/cluster/rank_list.h"
#include "virga/cluster/wire.h"

namespace virga::cluster {
namespace {

// How much longer than its own deadline a rank waits for rank 0's verdict, which says more.
constexpr Duration kVerdictTime = std::chrono::seconds(2);

std::exception_ptr as_exception(const Error& error) { return std::make_exception_ptr(error); }

template <class T>
std::future<T> failed_future(const Error& error) {
  std::promise<T> promise;
  promise.set_exception(as_exception(error));
  return promise.get_future();
}

Error no_coordinator(const std::string& key) {
  return Error(ErrorCode::kUnavailable, fmt::format("exchange '{}': rank 0 has left the job", printable(key)), 0);
}

}  // namespace

Member::Member(const ControlOptions& options, std::function<void(const wire::ToCoordinator&)> send)
    : options_(options), send_(std::move(send)) {}

// --- The meeting ---

std::future<Member::Members> Member::meet(Time now) {
  if (abort_) return failed_future<Members>(to_error(*abort_));
  met_at_ = now;
  next_progress_ = now + options_.progress_period;
  meeting_.emplace();
  return meeting_->get_future();
}

std::future<void> Member::greet(Time now) {
  line_ = Line::kGreeting;
  last_heard_ = now;
  wire::ToCoordinator message;
  wire::Hello& hello = *message.mutable_hello();
  hello.set_protocol(wire::kProtocol);
  hello.set_job(options_.job);
  hello.set_world_size(options_.world_size);
  hello.set_epoch(options_.epoch);
  hello.set_patience_seconds(to_seconds(met_at_ + options_.meeting_timeout - now));
  wire::put(options_.self, *hello.mutable_member());
  for (const Setting& setting : options_.self.fingerprint) {
    wire::Setting& line = *hello.add_fingerprint();
    line.set_name(setting.name);
    line.set_value(setting.value);
  }
  send_(message);
  greeting_.emplace();
  return greeting_->get_future();
}

void Member::give_up(const Error& error) {
  phase_ = Phase::kFailed;
  if (!abort_) abort_ = to_abort(error, options_.epoch);
  if (meeting_) meeting_->set_exception(as_exception(error));
  meeting_.reset();
  finish_greeting();
}

void Member::welcome(const wire::Welcome& message) {
  if (!meeting_) return;
  try {
    if (message.members_size() != options_.world_size) {
      fail(ErrorCode::kCorrupt, "rank 0 lists {} members of a job of {}", message.members_size(), options_.world_size);
    }
    Members members;
    for (const wire::Member& member : message.members()) {
      members.push_back(wire::get(member, options_.world_size));
      const Rank expected = static_cast<Rank>(members.size()) - 1;
      if (members.back().rank != expected) {
        fail(ErrorCode::kCorrupt, "rank 0 lists rank {} in the place of rank {}", members.back().rank, expected);
      }
      members.back().fingerprint = options_.self.fingerprint;
    }
    phase_ = Phase::kRunning;
    meeting_->set_value(std::move(members));
    meeting_.reset();
  } catch (const Error& error) {
    give_up(error);
  }
}

void Member::check_meeting(Time now) {
  if (!meeting_) return;
  const bool answered = line_ == Line::kOpen;
  const Time deadline = met_at_ + options_.meeting_timeout + (answered ? kVerdictTime : Duration::zero());
  const double waited = to_seconds(now - met_at_);
  if (now >= deadline) {
    give_up(Error(ErrorCode::kDeadlineExceeded,
                  fmt::format("rendezvous: rank {} did not meet rank 0 at {} within {:.0f} s: {}", options_.self.rank,
                              place(), waited, answered ? "rank 0 gives no verdict" : trouble_),
                  0));
    return;
  }
  if (answered || now < next_progress_) return;
  next_progress_ += options_.progress_period;
  if (!options_.on_progress) return;
  options_.on_progress(fmt::format("rank {} still looks for rank 0 at {} after {:.0f} s: {}", options_.self.rank,
                                   place(), waited, trouble_));
}

// --- The stream ---

void Member::receive(const wire::FromCoordinator& message, Time now) {
  if (line_ == Line::kNone || line_ == Line::kLost) return;
  last_heard_ = now;
  line_ = Line::kOpen;
  hear(message);
  finish_greeting();
}

void Member::hear(const wire::FromCoordinator& message) {
  switch (message.kind_case()) {
    case wire::FromCoordinator::kRefusal:
      give_up(Error(ErrorCode::kMismatch, fmt::format("rendezvous: rank {} was refused at {}: {}", options_.self.rank,
                                                      place(), printable(message.refusal().text(), 1000))));
      break;
    case wire::FromCoordinator::kHeartbeat:
      if (message.heartbeat().answer_now()) next_beat_ = Time(0);
      break;
    case wire::FromCoordinator::kAbort:
      fail_job(wire::get(message.abort(), options_.world_size));
      break;
    case wire::FromCoordinator::kResult:
      take_result(message.result());
      break;
    case wire::FromCoordinator::kGoodbye:
      take_goodbye();
      break;
    case wire::FromCoordinator::kWelcome:
      welcome(message.welcome());
      break;
    case wire::FromCoordinator::kProgress:
      if (options_.on_progress) options_.on_progress(printable(message.progress().text(), 1000));
      break;
    case wire::FromCoordinator::KIND_NOT_SET:
      break;  // of a later version
  }
}

// Rank 0 has left in order, or answers this rank's own goodbye.
void Member::take_goodbye() {
  coordinator_left_ = true;
  for (auto& [key, waiting] : waiting_) waiting.promise.set_exception(as_exception(no_coordinator(key)));
  waiting_.clear();
  finish_leaving();
}

void Member::disconnected(const std::string& how) {
  const bool was_open = line_ == Line::kOpen;
  line_ = was_open ? Line::kLost : Line::kNone;
  trouble_ = how;
  if (was_open) lose_coordinator("its control stream broke: its process ended or was killed");
  finish_greeting();
}

void Member::lose_coordinator(const std::string& how) {
  line_ = Line::kLost;
  if (!coordinator_left_) {
    fail_job({.epoch = options_.epoch,
              .code = ErrorCode::kPeerLost,
              .culprit = 0,
              .reason = fmt::format("rank 0 at {} is lost: {}", place(), how),
              .reporter = options_.self.rank});
  }
  finish_leaving();
}

// --- The running job ---

std::future<Member::Values> Member::exchange(const std::string& key, std::string value, Duration timeout, Time now) {
  if (abort_) return failed_future<Values>(to_error(*abort_));
  if (coordinator_left_) return failed_future<Values>(no_coordinator(key));
  if (waiting_.count(key)) {
    return failed_future<Values>(
        Error(ErrorCode::kInvalidArgument, fmt::format("exchange '{}' is under way already", printable(key))));
  }
  wire::ToCoordinator message;
  message.mutable_contribution()->set_key(key);
  message.mutable_contribution()->set_value(std::move(value));
  message.mutable_contribution()->set_patience_seconds(to_seconds(timeout));
  Waiting& waiting = waiting_[key];
  // Rank 0's verdict on a deadline takes up to three heartbeats; see Control.
  waiting.give_up_at = now + timeout + 3 * options_.heartbeat_period + kVerdictTime;
  send_(message);
  return waiting.promise.get_future();
}

void Member::take_result(const wire::ExchangeResult& result) {
  const auto found = waiting_.find(result.key());
  if (found == waiting_.end() || result.values_size() != options_.world_size) return;
  found->second.promise.set_value(Values(result.values().begin(), result.values().end()));
  waiting_.erase(found);
}

void Member::report(Abort abort) {
  if (abort_) return;
  abort.epoch = options_.epoch;
  abort.reporter = options_.self.rank;
  if (line_ != Line::kOpen || coordinator_left_) {
    fail_job(abort);
    return;
  }
  wire::ToCoordinator message;
  wire::put(abort, *message.mutable_report());
  send_(message);
}

void Member::set_listener(std::function<void(const Abort&)> listener) {
  listener_ = std::move(listener);
  if (listener_ && abort_) std::exchange(listener_, nullptr)(*abort_);
}

void Member::fail_job(const Abort& abort) {
  if (abort_) return;
  abort_ = abort;
  const bool had_met = has_met();
  give_up(to_error(abort));
  for (auto& [key, waiting] : waiting_) waiting.promise.set_exception(as_exception(to_error(abort)));
  waiting_.clear();
  if (had_met && listener_) std::exchange(listener_, nullptr)(abort);
}

std::future<void> Member::leave(Time now) {
  leaving_.emplace();
  std::future<void> future = leaving_->get_future();
  leave_by_ = now + options_.leave_timeout;
  if (line_ != Line::kOpen || coordinator_left_) {
    finish_leaving();
    return future;
  }
  wire::ToCoordinator message;
  message.mutable_goodbye();
  send_(message);
  return future;
}

void Member::finish_greeting() {
  if (greeting_) greeting_->set_value();
  greeting_.reset();
}

void Member::finish_leaving() {
  if (leaving_) leaving_->set_value();
  leaving_.reset();
}

// --- Time ---

void Member::tick(Time now) {
  check_meeting(now);
  check_silence(now);
  check_exchanges(now);
  if (now >= next_beat_) beat(now);
  if (now >= leave_by_) finish_leaving();
  last_tick_ = now;
}

void Member::check_silence(Time now) {
  if (line_ != Line::kOpen || coordinator_left_) return;
  // Whoever was stopped itself has heard nobody meanwhile.
  if (now - last_tick_ > options_.heartbeat_timeout / 2) last_heard_ = now;
  const Duration silence = now - last_heard_;
  if (silence <= options_.heartbeat_timeout) return;
  lose_coordinator(fmt::format("no sign of life for {:.1f} s (stopped, hung or cut off)", to_seconds(silence)));
}

void Member::check_exchanges(Time now) {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    if (now < waiting->second.give_up_at) {
      ++waiting;
      continue;
    }
    waiting->second.promise.set_exception(
        as_exception(Error(ErrorCode::kDeadlineExceeded,
                           fmt::format("exchange '{}': rank 0 gives no result", printable(waiting->first)), 0)));
    waiting = waiting_.erase(waiting);
  }
}

void Member::beat(Time now) {
  next_beat_ = now + options_.heartbeat_period;
  if (line_ != Line::kOpen || coordinator_left_) return;
  wire::ToCoordinator message;
  message.mutable_heartbeat();
  send_(message);
}

std::string Member::place() const {
  return options_.rendezvous_host.empty() ? "this process"
                                          : fmt::format("{}:{}", options_.rendezvous_host, options_.rendezvous_port);
}

}  // namespace virga::cluster
