// Events about the other members of a group. A member gets them within its polls. It gets
// kJoined for members that are alive already while its provider is made.
#pragma once

#include <cstdint>

#include "platform/version.h"

namespace bedplate {

enum class PeerEventKind : uint8_t {
  kJoined,    // messages to it are possible
  kLeft,      // it has left or died; everything that it sent was delivered before this
  kPoolGone,  // the owner of the pool has died or stopped, or takes this process for dead:
              // no messages are possible any more
  kCutOff,    // that peer ignores this member, which sent it something malformed
};
struct PeerEvent {
  PeerEventKind kind;
  uint32_t member = 0;      // its number in the group; meaningless for kPoolGone
  uint64_t generation = 0;  // tells apart the processes that have had this number (MemberWord)
};
// Called on the polling thread, or on the thread that makes the provider. Within a poll it may
// send. It does not poll. `context` is the caller's, and outlives the member.
struct PeerEventHandler {
  void (*function)(void* context, const PeerEvent& event) noexcept = nullptr;
  void* context = nullptr;
};

}  // namespace bedplate
