#include "virga/cluster/host_identity.h"

#include <gtest/gtest.h>
#include <set>

namespace virga::cluster {
namespace {

HostFacts example() {
  return {.boot_id = "6d0a4f5e-33c5-44c1-9d9b-2b1f6f3c4a10",
          .ipc_namespace = 4026531839,
          .shm_device = 25,
          .host_name = "node7"};
}

TEST(HostIdentity, IsTheFirst64BitsOfTheSha256OfTheFacts) {
  // printf 'virga host 1\n%s\n%s\n%s\n' 6d0a4f5e-33c5-44c1-9d9b-2b1f6f3c4a10 4026531839 25 |
  // sha256sum
  EXPECT_EQ(host_identity(example()), "ffdadaec26c0ada7");
}

TEST(HostIdentity, DiffersWhereAnyFactDiffers) {
  HostFacts boot = example(), ipc = example(), shm = example(), swapped = example();
  boot.boot_id.back() = '1';
  ipc.ipc_namespace += 1;
  shm.shm_device += 1;
  std::swap(swapped.ipc_namespace, swapped.shm_device);
  const std::set<std::string> all{host_identity(example()), host_identity(boot), host_identity(ipc), host_identity(shm),
                                  host_identity(swapped)};
  EXPECT_EQ(all.size(), 5u);
}

TEST(HostIdentity, DoesNotDependOnTheName) {
  HostFacts renamed = example();
  renamed.host_name = "other";
  EXPECT_EQ(host_identity(renamed), host_identity(example()));
}

TEST(HostIdentity, IsTheSameForTwoReadingsOnThisHost) {
  const HostFacts facts = read_host_facts();
  EXPECT_EQ(facts.boot_id.size(), 36u);
  EXPECT_NE(facts.ipc_namespace, 0u);
  EXPECT_FALSE(facts.host_name.empty());
  EXPECT_EQ(host_identity(facts), host_identity(read_host_facts()));
}

}  // namespace
}  // namespace virga::cluster
