// Events of the other members of a group, told to a member from within polls.
#pragma once

#include <cstdint>

namespace bedplate {

enum class PeerEventKind : uint8_t {
  kJoined,    // it can be sent to
  kLeft,      // it has left or died; everything that it had sent was delivered before this
  kPoolGone,  // the owner of the pool has died or stopped, or holds this process for dead: nobody
              // can be sent to any more
  kCutOff,    // that peer ignores what this member sends: it found nonsense there
};
struct PeerEvent {
  PeerEventKind kind;
  uint32_t member = 0;      // of the group; of kPoolGone nobody's
  uint64_t generation = 0;  // which of those that have had this place (MemberWord)
};
// Called on the thread that polls; it may send, and does not poll. `context` is the caller's, and
// outlives the member.
struct PeerEventHandler {
  void (*function)(void* context, const PeerEvent& event) noexcept = nullptr;
  void* context = nullptr;
};

}  // namespace bedplate
