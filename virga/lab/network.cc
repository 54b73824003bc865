#include "virga/lab/network.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "virga/base/error.h"
#include "virga/lab/process.h"

namespace virga::lab {
namespace {

constexpr int kPrefixLength = 24;

struct Unit {
  std::string_view name;
  double bits;
};
constexpr Unit kUnits[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}};

double unit_bits(std::string_view text, std::string_view& number) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    number = text.substr(0, text.size() - unit.name.size());
    return unit.bits;
  }
  return 0;
}

std::string port(int host) { return fmt::format("port{}", host); }

// The longest queue in front of a link. Large sends travel as packets of up to 64 KiB here, so that a
// short queue at the switch would drop dozens of segments at once and stall a sender for 200 ms, as
// no real switch does: of three senders to one host, 20 ms lost packets in every run (up to 30 % of
// the rate), 100 ms in none. Slow links have no less memory than others.
constexpr std::uint64_t kHostQueueMilliseconds = 20;
constexpr std::uint64_t kSwitchQueueMilliseconds = 100;
constexpr std::uint64_t kShortestQueue = 256 << 10;

// The longest packet, which passes a link at once: what the link carries in 131 us, one of Ethernet's at least. Longer
// ones cost less of the machine's cores, but what a real link takes its time for would take none.
std::uint64_t longest_packet(std::uint64_t rate) {
  return std::clamp<std::uint64_t>(rate / 8 * 131 / 1'000'000, 1536, 65536);
}

std::string shaping(std::string_view device, std::uint64_t rate, std::uint64_t queue_milliseconds) {
  const std::uint64_t burst =
      longest_packet(rate) * 17 / 16;  // each of the packets that a long one stands for has headers
  const std::uint64_t queue = std::max(rate / 8 * queue_milliseconds / 1000, kShortestQueue);
  return fmt::format("qdisc add dev {} root tbf rate {}bit burst {}b limit {}b\n", device, rate, burst, queue);
}

// No device may chat by itself (IPv6 neighbour discovery, multicast queries): every byte counted is
// a rank's.
std::string wiring(const std::vector<Machine>& machines) {
  std::string script =
      "link set lo up\n"
      "link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
      "link set br0 addrgenmode none\n"
      "link set br0 up\n";
  for (int host = 0; host < static_cast<int>(machines.size()); ++host) {
    const std::string name = port(host);
    script += fmt::format("link add {} type veth peer name e0 netns {}\n", name, machines[host].init());
    script += fmt::format("link set {} addrgenmode none\n", name);
    script += fmt::format("link set {} master br0 up\n", name);
  }
  return script;
}

std::string addressing(int host, std::uint64_t rate) {
  return fmt::format(
      "link set lo up\n"
      "link set e0 addrgenmode none\n"
      "link set e0 gso_max_size {}\n"
      "addr add {}/{} dev e0\n"
      "link set e0 up\n",
      longest_packet(rate), Switch::address(host), kPrefixLength);
}

std::uint64_t dropped(const Namespaces& network, const std::string& device) {
  const auto reply =
      nlohmann::json::parse(run_tool({"tc", "-j", "-s", "qdisc", "show", "dev", device, "root"}, &network));
  return reply.at(0).at("drops").get<std::uint64_t>();
}

}  // namespace

std::uint64_t parse_rate(std::string_view text) {
  std::string_view number;
  const double unit = unit_bits(text, number);
  const bool digits = !number.empty() && number.size() <= 18 && number.front() != '.' &&
                      number.find_first_not_of("0123456789.") == std::string_view::npos;
  const std::string copy(number);
  char* end = nullptr;
  const double value = digits ? std::strtod(copy.c_str(), &end) : -1;
  const double rate = digits && *end == '\0' ? std::round(value * unit) : -1;
  require(rate >= 1e3 && rate <= 1e11,
          "'{}' is no rate of a link: write a number and kbit, mbit or gbit, from 1kbit to 100gbit, "
          "as in 200mbit",
          text);
  return static_cast<std::uint64_t>(rate);
}

Switch::Switch(const std::vector<Machine>& machines, std::uint64_t rate_bits_per_second)
    : machines_(machines), network_(new_network()) {
  run_tool({"ip", "-batch", "-"}, &network_, wiring(machines));
  std::string shape_ports;
  for (int host = 0; host < static_cast<int>(machines.size()); ++host) {
    Namespaces const& inside = machines[host].namespaces();
    run_tool({"ip", "-batch", "-"}, &inside, addressing(host, rate_bits_per_second));
    run_tool({"tc", "-batch", "-"}, &inside, shaping("e0", rate_bits_per_second, kHostQueueMilliseconds));
    shape_ports += shaping(port(host), rate_bits_per_second, kSwitchQueueMilliseconds);
  }
  run_tool({"tc", "-batch", "-"}, &network_, shape_ports);
}

std::string Switch::address(int host) { return fmt::format("10.91.0.{}", host + 1); }

void Switch::set_link(int host, bool up) { run_tool({"ip", "link", "set", port(host), up ? "up" : "down"}, &network_); }

Traffic Switch::traffic(int host) const {
  const Namespaces& inside = machines_[host].namespaces();
  const auto reply = nlohmann::json::parse(run_tool({"ip", "-j", "-s", "link", "show", "dev", "e0"}, &inside));
  const auto& counters = reply.at(0).at("stats64");
  Traffic result;
  result.bytes_sent = counters.at("tx").at("bytes").get<std::uint64_t>();
  result.bytes_received = counters.at("rx").at("bytes").get<std::uint64_t>();
  result.drops_sending = dropped(inside, "e0");
  result.drops_receiving = dropped(network_, port(host));
  return result;
}

}  // namespace virga::lab
