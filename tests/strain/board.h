// The board: a segment of the pool in which each member of a stressed group writes a row of its
// own, for the watching program.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/cache_line.h"
#include "tests/strain/step_control.h"

namespace bedplate::strain {

inline constexpr uint32_t kMemberMax = 17;  // the owner and 16 others
inline constexpr char kBoardOwner[] = "strain:board";
inline constexpr char kOwnerHeapOwner[] = "heap:owner";

enum class Command : uint32_t {
  kRun,
  kStop,  // send nothing more, receive the remaining messages
  kEnd,
};

// Packs a count with the low bits of the receiver's generation.
constexpr uint64_t pack_count(uint64_t generation, uint64_t count) noexcept {
  return generation << 40 | count;
}
constexpr uint64_t count_for(uint64_t packed, uint64_t generation) noexcept {
  return packed >> 40 == (generation & 0xff'ffff) ? packed & 0xff'ffff'ffff : 0;
}

struct alignas(kCacheLineBytes) BoardRow {
  std::atomic<uint64_t> steps;     // rounds of its loop
  std::atomic<uint64_t> received;  // messages verified, from all members
  std::atomic<uint64_t> sent_bytes;
  std::atomic<uint64_t> loans_out;
  std::atomic<uint64_t> boxes_granted;
  std::atomic<uint64_t> boxes_returned;
  std::atomic<uint64_t> abandoned;
  // The end of the member's last stop, written by the process that stops the member. UINT64_MAX:
  // the member is stopped now.
  std::atomic<uint64_t> stopped_until_ns;
  std::atomic<uint64_t> longest_ns;  // longest delay from send to receive, without stops
  std::atomic<uint32_t> must_hurry;  // send only short messages, one after the other
  std::atomic<uint32_t> must_leave;
  std::atomic<uint32_t> has_stopped;
  std::atomic<uint32_t> is_done;            // has stopped; everything is received and returned
  std::atomic<uint64_t> sent[kMemberMax];   // pack_count; stored after each send that succeeded
  std::atomic<uint64_t> heard[kMemberMax];  // messages received from each current incarnation
  std::atomic<uint64_t> lent[kMemberMax];   // loans not returned by each member
};

struct Board {
  std::atomic<Command> command;
  std::atomic<uint64_t> mutations;  // by the scribbler
  StepControl step;
  BoardRow rows[kMemberMax];
};

}  // namespace bedplate::strain
