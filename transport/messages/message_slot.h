// The slot: one cache line that carries a message, or a reference to it.
//
// Inbound FIFOs (shm/) and fast boxes consist of slots. The header is one word. So one store
// publishes a message, and one instruction both claims a slot and names the claimer. The header
// carries the lap: how often the ring went round, plus one, modulo 2^29. A slot has a message if
// its lap is the one that the reader expects. Headers lie at fixed offsets and payload never
// overlaps them, so old bytes cannot pass for a message, and nobody has to clear a slot.
//
//     bits  0..2   kind
//     bits  3..10  active message (kControl: the request; kClaimed: ClaimState)
//     bits 11..23  payload bytes
//     bits 24..34  sender
//     bits 35..63  lap
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/cache_line.h"

namespace bedplate {

enum class SlotKind : uint32_t {
  kNone,
  kClaimed,  // a writer has claimed the slot and has not published yet
  kInline,   // the payload is in the slot
  kArea,     // fast box: the payload lies in the box's area (PayloadOffset)
  kEager,    // the payload lies in the sender's eager region (PayloadOffset)
  kLoan,     // LoanDescriptor
  kControl,  // between providers: ControlMessage
};

// The state of an unpublished claim (SlotHeader::am of kClaimed).
enum class ClaimState : uint32_t {
  kHeld,  // its writer is about to publish
  // The writer never publishes, but may still store into the payload: nobody claims the slot again.
  kRetired,
  kSkipped,  // the writer never publishes; the next lap uses the slot again
};

struct SlotHeader {
  SlotKind kind = SlotKind::kNone;
  uint32_t am = 0;
  uint32_t bytes = 0;
  uint32_t sender = 0;
};

inline constexpr unsigned kSlotLapShift = 35;
inline constexpr uint64_t kSlotLapMask = (uint64_t{1} << (64 - kSlotLapShift)) - 1;
inline constexpr unsigned kSlotSenderShift = 24;
inline constexpr unsigned kSlotBytesShift = 11;
inline constexpr unsigned kSlotAmShift = 3;
inline constexpr uint32_t kSlotSenderMax = (1u << (kSlotLapShift - kSlotSenderShift)) - 1;
inline constexpr uint32_t kSlotBytesMax = (1u << (kSlotSenderShift - kSlotBytesShift)) - 1;

constexpr uint64_t pack_slot(uint64_t lap, const SlotHeader& header) noexcept {
  return lap << kSlotLapShift | uint64_t{header.sender} << kSlotSenderShift |
         uint64_t{header.bytes} << kSlotBytesShift | uint64_t{header.am} << kSlotAmShift |
         static_cast<uint64_t>(header.kind);
}
constexpr SlotHeader unpack_slot(uint64_t word) noexcept {
  return {static_cast<SlotKind>(word & 7), static_cast<uint32_t>(word >> kSlotAmShift & 0xff),
          static_cast<uint32_t>(word >> kSlotBytesShift & kSlotBytesMax),
          static_cast<uint32_t>(word >> kSlotSenderShift & kSlotSenderMax)};
}
constexpr uint64_t slot_lap(uint64_t word) noexcept { return word >> kSlotLapShift; }

constexpr SlotHeader claimed_slot(uint32_t sender, ClaimState state) noexcept {
  return {SlotKind::kClaimed, static_cast<uint32_t>(state), 0, sender};
}
constexpr bool is_claim(const SlotHeader& header, ClaimState state) noexcept {
  return header.kind == SlotKind::kClaimed && header.am == static_cast<uint32_t>(state);
}

// The lap of message number `index` in a ring of 2^capacity_log2 slots. Zeroed memory looks as if
// the lap before the first had filled it.
constexpr uint64_t lap_of(uint64_t index, unsigned capacity_log2) noexcept {
  return ((index >> capacity_log2) + 1) & kSlotLapMask;
}
constexpr uint64_t lap_before(uint64_t lap) noexcept { return (lap - 1) & kSlotLapMask; }

inline constexpr uint32_t kInlineBytesMax = kCacheLineBytes - sizeof(uint64_t);

struct alignas(kCacheLineBytes) MessageSlot {
  std::atomic<uint64_t> header;
  std::byte payload[kInlineBytesMax];
};
static_assert(sizeof(MessageSlot) == kCacheLineBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The payload of a slot whose message does not fit into it.

struct PayloadOffset {
  uint64_t bytes = 0;  // kArea: offset in the area; kEager: offset in the sender's region
};

// A block of the pool that the sender lends. In shm, the receiver has it until it stores the low
// byte of `mark` into byte `loan` of the sender's table of returned loans.
inline constexpr uint32_t kLoanHeaderBytesMax = 32;
struct LoanDescriptor {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t loan = 0;
  uint16_t mark = 0;
  uint16_t header_bytes = 0;
  std::byte header[kLoanHeaderBytesMax] = {};
};
static_assert(sizeof(LoanDescriptor) <= kInlineBytesMax);

// Copies a few bytes: for payload that fits into a slot. A call of memcpy would cost more than the
// copy.
inline void copy_inline(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes >= 8) {
    for (size_t i = 0; i + 8 <= bytes; i += 8) __builtin_memcpy(to + i, from + i, 8);
    __builtin_memcpy(to + bytes - 8, from + bytes - 8, 8);  // the last 8 bytes, overlapping
  } else {
    for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

}  // namespace bedplate
