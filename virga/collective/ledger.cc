#include "virga/collective/ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace virga::collective {
namespace {

double highest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

void add_each(std::vector<double>& sum, const std::vector<double>& more) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

template <class T>
T& at(std::vector<T>& items, int index, const T& empty) {
  while (items.size() <= static_cast<size_t>(index)) items.push_back(empty);
  return items[static_cast<size_t>(index)];
}

constexpr double kNever = std::numeric_limits<double>::infinity();

// When a link is in use.
struct Use {
  double before = kNever;  // seconds until its first message
  double after = kNever;   // from its last message to the end
  double rest = kNever;    // from the end of that message's round to the end

  void join(const Use& other) {
    before = std::min(before, other.before);
    after = std::min(after, other.after);
    rest = std::min(rest, other.rest);
  }
};

}  // namespace

Ledger::Busy::Busy(const cluster::Topology& layout)
    : egress(layout.host_count()),
      ingress(layout.host_count()),
      inside(layout.world_size()),
      memory(layout.world_size()) {}

void Ledger::Busy::add(const Busy& more) {
  add_each(egress, more.egress);
  add_each(ingress, more.ingress);
  add_each(inside, more.inside);
  add_each(memory, more.memory);
}

std::vector<double> Ledger::Busy::links() const {
  std::vector<double> all = egress;
  all.insert(all.end(), ingress.begin(), ingress.end());
  all.insert(all.end(), inside.begin(), inside.end());
  return all;
}

double Ledger::Busy::highest_link() const { return std::max({highest(egress), highest(ingress), highest(inside)}); }
double Ledger::Busy::highest_memory() const { return highest(memory); }

Ledger::Ledger(const cluster::Topology& layout, const Figures& figures)
    : layout_(layout), figures_(figures), sent_(layout.world_size()), host_bytes_(layout.host_count()) {}

Ledger::Members::Members(Ledger& ledger, std::span<const int> positions) : ledger_(ledger), before_(ledger.members_) {
  std::vector<int> members;
  for (int position : positions) members.push_back(ledger.member(position));
  ledger_.members_ = std::move(members);
}

void Ledger::phase(size_t lanes) {
  cursor_ = {cursor_.phase + 1};
  at(phases_, cursor_.phase, Phase{}).lanes = lanes;
}

void Ledger::slice(size_t count) {
  if (cursor_.phase < 0) phase();
  cursor_ = {cursor_.phase, cursor_.slice + 1, -1, -1, count};
  Slice& slice = at(phases_[static_cast<size_t>(cursor_.phase)].slices, cursor_.slice, Slice{});
  slice.count = std::max(slice.count, count);
}

void Ledger::course() {
  if (cursor_.slice < 0) slice();
  ++cursor_.course;
  cursor_.round = -1;
}

void Ledger::round() {
  if (cursor_.course < 0) course();
  ++cursor_.round;
}

Ledger::Round& Ledger::here() {
  if (cursor_.round < 0) round();
  Slice& slice = phases_[static_cast<size_t>(cursor_.phase)].slices[static_cast<size_t>(cursor_.slice)];
  return at(at(slice.courses, cursor_.course, Course{}), cursor_.round, Round(layout_));
}

void Ledger::send(int from, int to, size_t bytes, size_t messages) {
  Round& round = here();
  const int sender = member(from), receiver = member(to);
  sent_[sender].bytes += bytes * cursor_.count;
  sent_[sender].messages += messages * cursor_.count;
  const int from_host = layout_.host_of(sender), to_host = layout_.host_of(receiver);
  const bool inside = from_host == to_host;
  const LinkFigures& link = inside ? figures_.inside_host : figures_.between_hosts;
  const double seconds =
      static_cast<double>(bytes) / link.bytes_per_second + static_cast<double>(messages) * link.message_seconds;
  if (inside) {
    round.busy.inside[sender] += seconds;
  } else {
    host_bytes_[from_host] += bytes * cursor_.count;
    round.busy.egress[from_host] += seconds;
    round.busy.ingress[to_host] += seconds;
  }
  if (messages == 0) return;
  if (link.segment_bytes > 0 && static_cast<double>(bytes) > link.segment_bytes * static_cast<double>(messages)) {
    round.busy.memory[receiver] += 2 * static_cast<double>(bytes) / figures_.memory_bytes_per_second;
  }
  round.latency = std::max(round.latency, link.latency_seconds);
  round.sends = true;
  round.takes_part[sender] = round.takes_part[receiver] = 1;
}

void Ledger::work(int given, size_t bytes_touched) {
  Round& round = here();
  const int who = member(given);
  round.busy.memory[who] += static_cast<double>(bytes_touched) / figures_.memory_bytes_per_second;
  round.takes_part[who] = 1;
}

std::vector<Ledger::Pass> Ledger::passes(const Course& course) const {
  const double burst = figures_.between_hosts.burst_bytes / figures_.between_hosts.bytes_per_second;
  std::vector<double> saved(2 * host_bytes_.size(), burst);  // by link between hosts
  std::vector<Pass> passes;
  for (const Round& round : course) {
    Pass pass;
    pass.links = round.busy.links();
    for (size_t i = 0; i < saved.size(); ++i) {
      const double at_once = std::min(saved[i], pass.links[i]);
      saved[i] -= at_once;
      pass.links[i] -= at_once;
    }
    pass.seconds = round.latency + highest(pass.links) + round.busy.highest_memory();
    for (size_t i = 0; i < saved.size(); ++i) saved[i] = std::min(burst, saved[i] + pass.seconds - pass.links[i]);
    passes.push_back(std::move(pass));
  }
  return passes;
}

Ledger::Alone Ledger::alone(const Slice& slice, size_t lanes) const {
  Alone alone;
  Busy busy(layout_);
  std::vector<double> held(layout_.world_size());  // by member: how long it holds a lane
  std::vector<Use> uses(busy.links().size());
  std::vector<double> waits(uses.size());
  for (const Course& course : slice.courses) {
    const std::vector<Pass> passes = this->passes(course);
    double seconds = 0, begin = 0;
    for (const Pass& pass : passes) seconds += pass.seconds;
    std::vector<Use> own(uses.size());
    for (size_t r = 0; r < course.size(); ++r) {
      const auto& [took, links] = passes[r];
      const double rest = seconds - begin - highest(links);
      const std::vector<double> carries = course[r].busy.links();
      for (size_t i = 0; i < links.size(); ++i) {
        if (carries[i] > 0) own[i] = {std::min(own[i].before, begin), seconds - begin - links[i], rest};
      }
      add_each(waits, links);
      for (size_t i = 0; i < held.size(); ++i) held[i] += course[r].takes_part[i] ? took : 0;
      busy.add(course[r].busy);
      begin += took;
    }
    for (size_t i = 0; i < uses.size(); ++i) uses[i].join(own[i]);
    alone.seconds = std::max(alone.seconds, seconds);
  }
  alone.links = busy.links();
  for (size_t i = 0; i < uses.size(); ++i) {
    if (alone.links[i] == 0) uses[i] = {0, 0, 0};
    alone.seconds = std::max(alone.seconds, uses[i].before + waits[i] + uses[i].rest);
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    alone.idle.push_back(std::max(0.0, alone.seconds - uses[i].before - waits[i] - uses[i].after));
  }
  alone.others = std::max(busy.highest_memory(), highest(held) / static_cast<double>(lanes));
  return alone;
}

double Ledger::seconds_of(const Phase& phase) const {
  double seconds = 0;
  std::vector<double> idle;  // of the first slice
  for (const Slice& slice : phase.slices) {
    const Alone one = alone(slice, phase.lanes);
    if (one.seconds == 0) continue;
    const bool first = idle.empty();
    if (first) {
      seconds = one.seconds;
      idle = one.idle;
    }
    const auto further = static_cast<double>(slice.count) - (first ? 1 : 0);
    double added = further * one.others;
    for (size_t i = 0; i < idle.size(); ++i) {
      const double carried = further * one.links[i];
      added = std::max(added, carried - idle[i]);
      idle[i] -= std::min(idle[i], carried);
    }
    seconds += added;
  }
  return seconds;
}

double Ledger::seconds() const {
  double seconds = 0;
  for (const Phase& phase : phases_) seconds += seconds_of(phase);
  return seconds;
}

int Ledger::rounds() const {
  int sum = 0;
  for (const Phase& phase : phases_) {
    int most = 0;
    for (const Slice& slice : phase.slices) {
      for (const Course& course : slice.courses) {
        most = std::max(most, static_cast<int>(std::count_if(course.begin(), course.end(),
                                                             [](const Round& round) { return round.sends; })));
      }
    }
    sum += most;
  }
  return sum;
}

}  // namespace virga::collective
