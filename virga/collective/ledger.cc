#include "virga/collective/ledger.h"

#include <algorithm>

namespace virga::collective {
namespace {

double highest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

void add(std::vector<double>& sum, const std::vector<double>& more) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

}  // namespace

Ledger::Busy::Busy(const cluster::Topology& layout)
    : egress(layout.host_count()),
      ingress(layout.host_count()),
      inside(layout.world_size()),
      memory(layout.world_size()) {}

Ledger::Ledger(const cluster::Topology& layout, const Figures& figures)
    : layout_(layout),
      figures_(figures),
      sent_(layout.world_size()),
      host_bytes_(layout.host_count()),
      round_(layout),
      slice_(layout) {}

void Ledger::phase(size_t lanes) {
  close_phase();
  lanes_ = lanes;
}

void Ledger::slice(size_t count) {
  close_slice();
  slice_.count = count;
}

void Ledger::round() { close_round(); }

void Ledger::send(int from, int to, size_t bytes, size_t messages) {
  const auto sender = static_cast<size_t>(from), receiver = static_cast<size_t>(to);
  const size_t count = std::max<size_t>(slice_.count, 1);
  sent_[sender].bytes += bytes * count;
  sent_[sender].messages += messages * count;
  const auto from_host = static_cast<size_t>(layout_.host_of(from)), to_host = static_cast<size_t>(layout_.host_of(to));
  const bool inside = from_host == to_host;
  const LinkFigures& link = inside ? figures_.inside_host : figures_.between_hosts;
  const double seconds =
      static_cast<double>(bytes) / link.bytes_per_second + static_cast<double>(messages) * link.message_seconds;
  if (inside) {
    round_.busy.inside[sender] += seconds;
  } else {
    host_bytes_[from_host] += bytes * count;
    round_.busy.egress[from_host] += seconds;
    round_.busy.ingress[to_host] += seconds;
  }
  if (messages == 0) return;
  round_.latency = std::max(round_.latency, link.latency_seconds);
  round_.sends = true;
  round_.takes_part[sender] = round_.takes_part[receiver] = 1;
}

void Ledger::work(int member, size_t bytes_touched) {
  const auto who = static_cast<size_t>(member);
  round_.busy.memory[who] += static_cast<double>(bytes_touched) / figures_.memory_bytes_per_second;
  round_.takes_part[who] = 1;
}

void Ledger::close_round() {
  const Busy& busy = round_.busy;
  const double links = std::max({highest(busy.egress), highest(busy.ingress), highest(busy.inside)});
  const double seconds = round_.latency + links + highest(busy.memory);
  if (seconds > 0 || round_.sends) {
    slice_.seconds += seconds;
    slice_.rounds += round_.sends ? 1 : 0;
    add(slice_.busy.egress, busy.egress);
    add(slice_.busy.ingress, busy.ingress);
    add(slice_.busy.inside, busy.inside);
    add(slice_.busy.memory, busy.memory);
    for (size_t i = 0; i < slice_.held.size(); ++i) slice_.held[i] += round_.takes_part[i] ? seconds : 0;
  }
  round_ = Round(layout_);
}

void Ledger::close_slice() {
  close_round();
  const Busy& busy = slice_.busy;
  const double busiest =
      std::max({highest(busy.egress), highest(busy.ingress), highest(busy.inside), highest(busy.memory)});
  const double each = std::max(busiest, highest(slice_.held) / static_cast<double>(lanes_));
  const size_t count = std::max<size_t>(slice_.count, 1);
  phase_seconds_ +=
      first_slice_ ? slice_.seconds + each * static_cast<double>(count - 1) : each * static_cast<double>(count);
  if (slice_.rounds > 0 || slice_.seconds > 0) first_slice_ = false;
  phase_rounds_ = std::max(phase_rounds_, slice_.rounds);
  slice_ = Slice(layout_);
}

void Ledger::close_phase() {
  close_slice();
  seconds_ += phase_seconds_;
  rounds_ += phase_rounds_;
  phase_seconds_ = 0;
  phase_rounds_ = 0;
  first_slice_ = true;
}

double Ledger::seconds() {
  close_phase();
  return seconds_;
}

int Ledger::rounds() {
  close_phase();
  return rounds_;
}

}  // namespace virga::collective
