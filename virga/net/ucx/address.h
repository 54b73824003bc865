#pragma once

#include <string>
#include <string_view>

#include "virga/base/ids.h"

namespace virga::net::ucx {

// What a rank publishes so that others can connect: the addresses of its two workers.
struct Address {
  Rank rank = 0;
  std::string inside_host;
  std::string between_hosts;
};

// Wire format (docs/wire.md), little-endian: "VUCX", u16 version, u16 zero, i32 rank, u32 length
// and bytes of the address inside the host, u32 length and bytes of that between hosts, u64 FNV-1a
// of all before.
std::string encode(const Address& address);

// Throws kCorrupt for anything that encode() can't have made. UCX itself trusts what it is given,
// hence the checksum.
Address decode_address(std::string_view blob);

}  // namespace virga::net::ucx
