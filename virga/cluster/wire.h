#pragma once

#include "virga/cluster/control.h"

// Control's structures to protobuf and back. What comes in is checked here, once.
namespace virga::cluster::wire {

class Abort;
class Hello;
class Member;

inline constexpr uint32_t kProtocol = 1;

void put(const MemberInfo& info, Member& message);
void put(const cluster::Abort& abort, Abort& message);

// Throw kCorrupt if a field is longer than MemberInfo allows; the rank is checked against the world
// size.
MemberInfo get(const Member& message, int world_size);
// With the fingerprint, which only a Hello carries.
MemberInfo get_member(const Hello& message, int world_size);

// Never throws: what can't be is replaced (an unknown code by kAborted, an unknown rank by -1, long
// texts are cut).
cluster::Abort get(const Abort& message, int world_size);

}  // namespace virga::cluster::wire
