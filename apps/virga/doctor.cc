#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <set>
#include <string>
#include <thread>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>
#include <unistd.h>

#include "virga/data/dataset.h"
#include "virga/kernel/isa.h"
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

// What the kernels would use.
Finding look_at_cpu() {
  const bool avx2 = kernel::is_supported(kernel::Isa::kAvx2), avx512 = kernel::is_supported(kernel::Isa::kAvx512);
  return {true, fmt::format("{} cores, {}AVX2 with F16C, {}AVX-512", std::thread::hardware_concurrency(),
                            avx2 ? "" : "no ", avx512 ? "" : "no ")};
}

Finding look_at_torch() {
#ifdef VIRGA_TORCH_VERSION
  return {true, VIRGA_TORCH_VERSION};
#else
  return {false, "built without it: apt install libtorch-dev, configure with -DVIRGA_WITH_TORCH=ON"};
#endif
}

Finding look_at_data() {
  const data::KnownDataset& dataset = data::known_datasets().front();
  const std::string sample = fmt::format("{}/train-images-idx3-ubyte.gz", dataset.folder);
  if (::access(sample.c_str(), R_OK) == 0) return {true, std::string(dataset.folder)};
  return {false, fmt::format("apt install {}, or give --data a folder", dataset.package)};
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
