// Events about the other members of a group; a member gets them within its polls.
#pragma once

#include <cstdint>

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
// Called on the polling thread; it may send, and does not poll. `context` is the caller's, and
// outlives the member.
struct PeerEventHandler {
  void (*function)(void* context, const PeerEvent& event) noexcept = nullptr;
  void* context = nullptr;
};

}  // namespace bedplate
