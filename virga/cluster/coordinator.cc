#include "virga/cluster/coordinator.h"

#include <algorithm>

#include "virga/cluster/control.pb.h"
#include "virga/cluster/fingerprint.h"
#include "virga/cluster/rank_list.h"
#include "virga/cluster/wire.h"

namespace virga::cluster {
namespace {

constexpr double kMaxPatienceSeconds = 7 * 24 * 3600;

// NaN becomes 0.
Duration patience(double seconds) { return from_seconds(seconds > 0 ? std::min(seconds, kMaxPatienceSeconds) : 0); }

wire::FromCoordinator abort_message(const Abort& abort) {
  wire::FromCoordinator message;
  wire::put(abort, *message.mutable_abort());
  return message;
}

wire::FromCoordinator heartbeat(bool answer_now = false) {
  wire::FromCoordinator message;
  message.mutable_heartbeat()->set_answer_now(answer_now);
  return message;
}

}  // namespace

Coordinator::Coordinator(const ControlOptions& options, Outlet outlet)
    : options_(options),
      outlet_(std::move(outlet)),
      members_(options.world_size),
      verdict_(options.heartbeat_period),
      exchanges_(options.world_size) {}

void Coordinator::opened(LinkId link, Time now) { links_[link].opened_at = now; }

void Coordinator::receive(LinkId link, const wire::ToCoordinator& message, Time now) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;  // it was closed while this was on its way
  const Rank rank = found->second.rank;
  if (rank >= 0) {
    hear(rank, message, now);
  } else if (message.has_hello()) {
    greet(link, message.hello(), now);
  } else if (message.has_goodbye()) {
    forget(link);
  }
}

void Coordinator::closed(LinkId link, Time) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  const Rank rank = found->second.rank;
  if (rank >= 0) {
    lose(rank, "its control stream broke: its process ended or was killed");
  } else {
    forget(link);
  }
}

void Coordinator::tick(Time now) {
  if (phase_ == Phase::kMeeting) check_meeting(now);
  check_silence(now);
  check_exchanges(now);
  check_verdict(now);
  drop_strangers(now);
  if (now >= next_beat_) beat(now);
  last_tick_ = now;
}

void Coordinator::end_meeting() {
  if (phase_ != Phase::kMeeting) return;
  fail_meeting(ErrorCode::kPeerLost, "rank 0 left before all ranks had come", 0);
}

bool Coordinator::deserted() const {
  const bool no_stream = links_.empty() || (links_.size() == 1 && links_.count(kLocal));
  return no_stream && !(expects_latecomers_ && !missing().empty());
}

void Coordinator::say_goodbye() {
  wire::FromCoordinator message;
  message.mutable_goodbye();
  send_all(message);
  while (!links_.empty()) forget(links_.begin()->first);
}

// --- The meeting ---

void Coordinator::greet(LinkId link, const wire::Hello& hello, Time now) {
  if (const auto reason = reason_to_refuse(hello)) {
    refuse(link, *reason);
    return;
  }
  if (!abort_) {
    try {
      check_job(hello);
      join(link, hello, now);
      return;
    } catch (const Error& error) {
      fail_meeting(error.code(), error.what(), error.culprit());
    }
  }
  outlet_.send(link, abort_message(*abort_));  // it has not joined, so nobody else tells it
  note_told(hello);
}

// Nobody need wait any more for a rank that never joined but has heard why.
void Coordinator::note_told(const wire::Hello& hello) {
  const Rank rank = hello.member().rank();
  if (rank < 0 || rank >= options_.world_size) return;
  if (members_[rank].state == State::kAbsent) members_[rank].state = State::kLeft;
}

// What shows that a newcomer belongs elsewhere: this job must not suffer from that.
std::optional<std::string> Coordinator::reason_to_refuse(const wire::Hello& hello) const {
  if (hello.protocol() != wire::kProtocol) {
    return fmt::format(
        "rank 0 speaks version {} of the control protocol and this rank version {}: install the "
        "same Virga everywhere",
        wire::kProtocol, hello.protocol());
  }
  if (hello.job() != options_.job) {
    return fmt::format("another job ('{}', this one is '{}') holds that port: choose another one",
                       printable(options_.job), printable(hello.job()));
  }
  if (phase_ == Phase::kRunning) {
    return fmt::format(
        "the job there has met already, with all its {} ranks: another job holds that port, or "
        "this "
        "rank was started twice",
        options_.world_size);
  }
  return std::nullopt;
}

void Coordinator::check_job(const wire::Hello& hello) const {
  const Rank rank = hello.member().rank();
  if (hello.world_size() != options_.world_size) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("rank {} has a world size of {}, rank 0 of {}", rank, hello.world_size(), options_.world_size),
        rank);
  }
  if (hello.epoch() != options_.epoch) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("rank {} is in epoch {}, rank 0 in epoch {}", rank, hello.epoch(), options_.epoch), rank);
  }
}

void Coordinator::join(LinkId link, const wire::Hello& hello, Time now) {
  MemberInfo info = wire::get_member(hello, options_.world_size);
  Member& member = members_[info.rank];
  if (member.state != State::kAbsent) {
    fail(ErrorCode::kMismatch,
         "rank {} came twice, from host {} and from host {}: give every process a rank of its own", info.rank,
         member.info.host_name, info.host_name);
  }
  links_[link].rank = info.rank;
  member = {.state = State::kPresent, .link = link, .info = std::move(info), .last_heard = now};
  outlet_.send(link, heartbeat());
  if (!first_came_at_) {
    first_came_at_ = now;
    next_progress_ = now + options_.progress_period;
  }
  meeting_deadline_ = std::min(meeting_deadline_, now + patience(hello.patience_seconds()));
  if (missing().empty()) welcome_all();
}

void Coordinator::refuse(LinkId link, const std::string& reason) {
  wire::FromCoordinator message;
  message.mutable_refusal()->set_text(reason);
  outlet_.send(link, message);
  forget(link);
}

void Coordinator::welcome_all() {
  std::vector<MemberInfo> infos;
  for (const Member& member : members_) infos.push_back(member.info);
  if (const auto difference = fingerprint_difference(infos)) {
    fail_meeting(ErrorCode::kMismatch, "the ranks were started differently: " + *difference);
    return;
  }
  wire::FromCoordinator message;
  for (const MemberInfo& info : infos) wire::put(info, *message.mutable_welcome()->add_members());
  send_all(message);
  phase_ = Phase::kRunning;
}

void Coordinator::check_meeting(Time now) {
  if (!first_came_at_) return;
  const double waited = to_seconds(now - *first_came_at_);
  if (now >= meeting_deadline_) {
    fail_meeting(ErrorCode::kDeadlineExceeded,
                 fmt::format("{} of {} did not come within {:.0f} s: see whether they were started "
                             "and can reach rank 0",
                             name_ranks(missing()), options_.world_size, waited),
                 missing().front());
    return;
  }
  if (now < next_progress_) return;
  next_progress_ += options_.progress_period;
  wire::FromCoordinator message;
  message.mutable_progress()->set_text(fmt::format("still waiting for ranks {} of {} after {:.0f} s",
                                                   list_ranks(missing()), options_.world_size, waited));
  send_all(message);
}

void Coordinator::fail_meeting(ErrorCode code, const std::string& reason, Rank culprit) {
  expects_latecomers_ = code == ErrorCode::kMismatch || code == ErrorCode::kCorrupt;
  abort({.code = code, .operation = "rendezvous", .culprit = culprit, .reason = reason, .reporter = 0});
}

// --- The running job ---

void Coordinator::hear(Rank rank, const wire::ToCoordinator& message, Time now) {
  members_[rank].last_heard = now;
  if (message.has_report()) {
    Abort report = wire::get(message.report(), options_.world_size);
    report.reporter = rank;
    take_report(rank, std::move(report), now);
  } else if (message.has_contribution()) {
    take_value(rank, message, now);
  } else if (message.has_goodbye()) {
    take_leave(rank);
  }
}

void Coordinator::take_report(Rank rank, Abort report, Time now) {
  if (abort_) return;
  if (report.code != ErrorCode::kDeadlineExceeded) {
    abort(std::move(report));
    return;
  }
  report.reporter = rank;
  verdict_.add(report, now);
  send_all(heartbeat(true));
}

void Coordinator::take_value(Rank rank, const wire::ToCoordinator& message, Time now) {
  if (phase_ != Phase::kRunning) return;
  const wire::Contribution& given = message.contribution();
  try {
    auto values = exchanges_.add(given.key(), rank, given.value(), now + patience(given.patience_seconds()));
    if (!values) return;
    wire::FromCoordinator result;
    result.mutable_result()->set_key(given.key());
    for (std::string& value : *values) result.mutable_result()->add_values(std::move(value));
    send_all(result);
  } catch (const Error& error) {
    abort({.code = error.code(), .operation = "exchange", .culprit = rank, .reason = error.what(), .reporter = 0});
  }
}

void Coordinator::take_leave(Rank rank) {
  Member& member = members_[rank];
  member.state = State::kLeft;
  if (phase_ == Phase::kMeeting) {
    fail_meeting(ErrorCode::kPeerLost, describe(rank) + " left before all ranks had come", rank);
  }
  wire::FromCoordinator message;
  message.mutable_goodbye();
  outlet_.send(member.link, message);
  forget(member.link);
}

void Coordinator::lose(Rank rank, const std::string& how) {
  Member& member = members_[rank];
  member.state = State::kLost;
  const std::string reason = fmt::format("{} is lost: {}", describe(rank), how);
  if (phase_ == Phase::kMeeting) {
    fail_meeting(ErrorCode::kPeerLost, reason + ", before all ranks had come", rank);
  } else if (!verdict_.has_report_of(rank)) {  // whoever reported a failure may end with it
    abort({.code = ErrorCode::kPeerLost, .culprit = rank, .reason = reason, .reporter = 0});
  }
  forget(member.link);
}

void Coordinator::check_silence(Time now) {
  // Whoever was stopped itself has heard nobody meanwhile.
  const bool slept = now - last_tick_ > options_.heartbeat_timeout / 2;
  for (Rank rank = 1; rank < options_.world_size; ++rank) {
    Member& member = members_[rank];
    if (member.state != State::kPresent) continue;
    if (slept) member.last_heard = now;
    const Duration silence = now - member.last_heard;
    if (silence <= options_.heartbeat_timeout) continue;
    lose(rank, fmt::format("no sign of life for {:.1f} s (stopped, hung or cut off)", to_seconds(silence)));
  }
}

void Coordinator::check_verdict(Time now) {
  if (abort_ || !verdict_.pending()) return;
  std::map<Rank, Time> last_heard;
  for (Rank rank = 1; rank < options_.world_size; ++rank) {
    if (members_[rank].state == State::kPresent) last_heard[rank] = members_[rank].last_heard;
  }
  const auto verdict = verdict_.decide(last_heard, now);
  if (!verdict) return;
  abort(*verdict);
  const bool silent = verdict->code == ErrorCode::kPeerLost;
  if (silent && members_[verdict->culprit].state == State::kPresent) lose(verdict->culprit, "it is silent");
}

void Coordinator::check_exchanges(Time now) {
  if (phase_ != Phase::kRunning) return;
  const auto has_left = [this](Rank rank) { return members_[rank].state == State::kLeft; };
  if (auto failure = exchanges_.failure(has_left, now)) take_report(0, std::move(*failure), now);
}

void Coordinator::drop_strangers(Time now) {
  std::vector<LinkId> strangers;
  for (const auto& [id, link] : links_) {
    const bool silent = link.rank < 0 && now - link.opened_at > options_.heartbeat_timeout;
    if (silent && id != kLocal) strangers.push_back(id);
  }
  for (LinkId link : strangers) forget(link);
}

void Coordinator::beat(Time now) {
  next_beat_ = now + options_.heartbeat_period;
  for (const auto& [id, link] : links_) {
    if (link.rank >= 0) outlet_.send(id, heartbeat());
  }
}

void Coordinator::abort(Abort abort) {
  if (abort_) return;
  abort.epoch = options_.epoch;
  abort_ = std::move(abort);
  phase_ = Phase::kAborted;
  send_all(abort_message(*abort_));
}

void Coordinator::send_all(const wire::FromCoordinator& message) {
  for (const auto& [id, link] : links_) {
    if (link.rank >= 0) outlet_.send(id, message);  // who has not joined is greeted, or refused, by itself
  }
}

void Coordinator::forget(LinkId link) {
  links_.erase(link);
  outlet_.close(link);
}

std::vector<Rank> Coordinator::missing() const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < options_.world_size; ++rank) {
    if (members_[rank].state == State::kAbsent) ranks.push_back(rank);
  }
  return ranks;
}

std::string Coordinator::describe(Rank rank) const {
  return fmt::format("rank {} (host {})", rank, members_[rank].info.host_name);
}

}  // namespace virga::cluster
