#pragma once

#include <functional>

#include "virga/collective/vector.h"

namespace virga::collective {

// What becomes of one owner's shard between the hosts: the group has one rank a host, in host order.
using AcrossHosts = std::function<Task<void>(unsigned phase, Group across, FloatVector shard)>;

// The frame of every hierarchical collective over the whole job: dense where links are fast, `across` where they are
// slow. In place. `across` runs only on owners; it may use phases `phase` and `phase` + 1 for its messages.
Task<void> hierarchical(Operation& op, FloatVector data, AcrossHosts across);

}  // namespace virga::collective
