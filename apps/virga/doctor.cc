#include <cpuid.h>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <set>
#include <string>
#include <thread>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>
#include <unistd.h>

#include "virga/lab/lab.h"

#include "command.h"

namespace virga::command {
namespace {

struct Finding {
  bool ok;
  std::string text;  // what was found, or what to do
};

struct Check {
  const char* name;
  Finding (*look)();
  bool needed;  // for training on this machine; the rest is for labs
};

// ---- UCX ----

void add_transports(uct_component_h component, const char* domain, std::set<std::string>& names) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h md = nullptr;
  const ucs_status_t opened = uct_md_open(component, domain, config, &md);
  uct_config_release(config);
  if (opened != UCS_OK) return;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(md, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i) names.insert(resources[i].tl_name);
    uct_release_tl_resource_list(resources);
  }
  uct_md_close(md);
}

void add_transports(uct_component_h component, std::set<std::string>& names) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK) return;
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (domains.empty() || uct_component_query(component, &attributes) != UCS_OK) return;
  for (const auto& domain : domains) add_transports(component, domain.md_name, names);
}

std::set<std::string> ucx_transports() {
  std::set<std::string> names;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (uct_query_components(&components, &count) != UCS_OK) return names;
  for (unsigned i = 0; i < count; ++i) add_transports(components[i], names);
  uct_release_component_list(components);
  return names;
}

Finding look_at_ucx() {
  const std::set<std::string> names = ucx_transports();
  const std::string found = fmt::format("{}, transports {}", ucp_get_version_string(), fmt::join(names, " "));
  for (const char* needed : {"self", "posix", "tcp"}) {
    if (names.count(needed) != 0) continue;
    return {false, fmt::format("{}: {} is not among them; is UCX_TLS set, or /dev/shm not there?", found, needed)};
  }
  return {true, found};
}

// ---- the rest ----

bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

Finding look_at_cpu() {
  std::string text = fmt::format("{} cores", std::thread::hardware_concurrency());
  const auto add = [&text](bool has, const char* name) { text += fmt::format(", {}{}", has ? "" : "no ", name); };
  add(__builtin_cpu_supports("avx2"), "AVX2");
  add(has_f16c(), "F16C");
  add(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"), "AVX-512");
  return {true, text};
}

Finding look_at_torch() {
#ifdef VIRGA_TORCH_VERSION
  return {true, VIRGA_TORCH_VERSION};
#else
  return {false, "built without it: apt install libtorch-dev, configure with -DVIRGA_WITH_TORCH=ON"};
#endif
}

Finding look_at_data() {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  const std::string sample = folder + "/train-images-idx3-ubyte.gz";
  if (::access(sample.c_str(), R_OK) == 0) return {true, folder};
  return {false, "apt install dataset-fashion-mnist (in Debian's contrib or main), or give --data a folder"};
}

Finding look_at_namespaces() {
  lab::require_lab_support();
  const lab::Machine probe("probe", "");
  return {true, "root, network, PID, IPC, UTS and mount namespaces"};
}

Finding look_at_shaping() {
  lab::require_lab_support();
  std::vector<lab::Machine> machines;
  machines.emplace_back("probe", "");
  const lab::Switch probe(machines, lab::parse_rate("1gbit"));
  return {true, "veth, bridge and tbf"};
}

constexpr Check kChecks[] = {
    {"cpu", look_at_cpu, true},
    {"ucx", look_at_ucx, true},
    {"torch", look_at_torch, true},
    {"fashion-mnist", look_at_data, true},
    {"lab namespaces", look_at_namespaces, false},
    {"lab links", look_at_shaping, false},
};

int examine() {
  bool ready = true;
  for (const Check& check : kChecks) {
    Finding finding;
    try {
      finding = check.look();
    } catch (const std::exception& error) {
      finding = {false, error.what()};
    }
    fmt::print("{:8} {:15} {}\n", finding.ok ? "ok" : "missing", check.name, finding.text);
    if (check.needed && !finding.ok) ready = false;
  }
  fmt::print("{}\n", ready ? "Ready to train on this machine."
                           : "Not ready to train on this machine: see what is missing above.");
  return ready ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Context& context) {
  app.add_subcommand("doctor", "Looks whether this machine has what Virga needs")->callback([&context] {
    context.exit_status = examine();
  });
}

}  // namespace virga::command
