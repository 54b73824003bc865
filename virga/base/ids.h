#pragma once

#include <cstdint>

namespace virga {

using Rank = int32_t;    // a process of the job, 0 .. world size - 1
using Epoch = uint64_t;  // generation of the membership; messages of another epoch are refused
using OpNumber = uint64_t;

}  // namespace virga
