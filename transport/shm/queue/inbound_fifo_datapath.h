// The inbound FIFO of a member: bounded, many writers, one reader. A writer that is killed, or
// stopped for any time, at any instruction, does not stop the FIFO.
//
// A writer claims a slot by a compare-and-swap on the slot's own header. That one word says that
// the slot is taken, for which lap, and by which member. Then the writer advances the claim
// counter; a writer that finds the counter behind helps. So a taken slot always names its writer.
// The writer publishes by another compare-and-swap, from its claim to the message.
//
// The reader may end an unpublished claim: then publishing fails, and the writer takes another
// slot. If that writer may still run, its stores may come at any time; the claim is retired, so
// that nobody else takes the slot. Writers of later laps pass a retired slot on, one lap each time,
// until its writer has noticed or has exited. If no store can come, the claim is skipped, and the
// slot is used again in the next lap.
//
// Invariants: 1. tail - 1 <= claims <= tail + capacity. 2. A slot is claimed only after the one
// before it, so the claim counter is the number of the first unclaimed slot, or one less for a
// moment. 3. A slot of the lap that is due changes from the lap before to claimed (any writer),
// then to published (that writer alone), skipped or retired (the reader), from retired to skipped
// (that writer; the reader, once the writer has exited). 4. Only the reader writes the tail. 5.
// Only the writer that has claimed a slot stores into its payload, and not after the slot was
// published or skipped. (1 to 3: is_valid(). 4: the compiler, since writers have an InboundFifo,
// which cannot write the tail. 5: FifoSender::post() checks the name in the claim;
// tests/model/inbound_fifo.pml searches all orders of steps for a store that comes late, or into
// another writer's payload.)
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "platform/assert.h"
#include "transport/messages/message_slot.h"

namespace bedplate {

class InboundFifo {
 public:
  static constexpr uint64_t slot_bytes(uint64_t entry_count) noexcept {
    return entry_count * sizeof(MessageSlot);
  }

  InboundFifo() noexcept = default;
  // `memory` holds the claim counter's line, the tail's line, and the slots; all zero at first.
  // Requires: entry_count is a power of two.
  InboundFifo(std::byte* memory, uint32_t entry_count, uint32_t line_bytes) noexcept
      : claims_(reinterpret_cast<std::atomic<uint64_t>*>(memory)),
        tail_(reinterpret_cast<std::atomic<uint64_t>*>(memory + line_bytes)),
        slots_(reinterpret_cast<MessageSlot*>(memory + 2 * line_bytes)),
        mask_(entry_count - 1),
        capacity_log2_(static_cast<unsigned>(std::countr_zero(entry_count))) {
    BP_DCHECK(std::has_single_bit(entry_count));
  }

  // For writers.

  struct Claim {
    MessageSlot* slot = nullptr;  // nullptr: the FIFO is full, or a member spoilt it
    uint64_t index = 0;
    uint32_t sender = 0;
  };
  // Claims the next slot for member `sender`. The caller fills the slot's payload, then calls
  // publish(), for which the reader waits. `known_tail` is the tail that the caller saw last;
  // try_claim() refreshes it if the FIFO looks full. Threads: any. Cost: two compare-and-swaps, on
  // the slot's line and on the counter's.
  Claim try_claim(uint32_t sender, uint64_t* known_tail) noexcept;
  // Whether a slot could be claimed now, as far as writers can see.
  bool has_room() const noexcept {
    return claims_->load(std::memory_order_relaxed) + 1 - tail_->load(std::memory_order_acquire) <=
           mask_ + 1;
  }

  // Publishes the message in the claimed slot. Returns false if the reader has ended the claim:
  // then nothing was sent, and the caller may try again in another slot. Requires: header.sender is
  // the claim's. Cost: a compare-and-swap on the slot's line.
  bool publish(const Claim& claim, const SlotHeader& header) noexcept {
    BP_DCHECK(claim.slot == &slots_[claim.index & mask_]);
    const uint64_t lap = lap_of(claim.index, capacity_log2_);
    uint64_t word = pack_slot(lap, claimed_slot(claim.sender, ClaimState::kHeld));
    if (BP_LIKELY(claim.slot->header.compare_exchange_strong(
            word, pack_slot(lap, header), std::memory_order_release,  // pairs with peek
            std::memory_order_relaxed))) {
      return true;
    }
    free_retired(*claim.slot, claim.sender);
    return false;
  }

  uint64_t tail() const noexcept { return tail_->load(std::memory_order_acquire); }
  uint64_t claims() const noexcept { return claims_->load(std::memory_order_acquire); }

  // For anybody.

  // Returns the slot at `tail`, and sets `*header`. kNone: nobody has claimed the slot yet.
  // kClaimed: header.sender has claimed it and not published (ClaimState).
  MessageSlot& peek(uint64_t tail, SlotHeader* header) const noexcept {
    MessageSlot& slot = slots_[tail & mask_];
    const uint64_t word = slot.header.load(std::memory_order_acquire);
    *header = slot_lap(word) == lap_of(tail, capacity_log2_) ? unpack_slot(word) : SlotHeader{};
    return slot;
  }
  uint32_t capacity() const noexcept { return static_cast<uint32_t>(mask_ + 1); }

  // Checks invariants 1 to 3. Requires: nobody writes meanwhile, and nobody has spoilt the FIFO; so
  // it is for tests. FifoReceiver checks the reader's private state.
  bool is_valid() const noexcept;

 protected:
  // After this many lost races a writer gives up for now. Honest writers make progress each time;
  // only a spoilt counter keeps a writer busy for longer.
  static constexpr int kAttemptsMax = 1000;

  // If `slot` is retired in the name of `sender`, changes it to skipped. Another writer may pass
  // the slot on to a later lap meanwhile; then this tries again.
  static void free_retired(MessageSlot& slot, uint32_t sender) noexcept {
    uint64_t word = slot.header.load(std::memory_order_relaxed);
    for (;;) {
      const SlotHeader header = unpack_slot(word);
      if (!is_claim(header, ClaimState::kRetired) || header.sender != sender) return;
      // Release: all stores into the payload come before those of the slot's next writer.
      if (slot.header.compare_exchange_weak(
              word, pack_slot(slot_lap(word), claimed_slot(sender, ClaimState::kSkipped)),
              std::memory_order_acq_rel)) {
        return;
      }
    }
  }

  std::atomic<uint64_t>* claims_ = nullptr;
  std::atomic<uint64_t>* tail_ = nullptr;
  MessageSlot* slots_ = nullptr;
  uint64_t mask_ = 0;
  unsigned capacity_log2_ = 0;
};

// The reader's end. The caller keeps the tail in its own memory and passes it as `tail`, because
// peers can scribble over the tail in the FIFO. Threads: one.
class InboundFifoReader : public InboundFifo {
 public:
  InboundFifoReader() noexcept = default;
  explicit InboundFifoReader(const InboundFifo& fifo) noexcept : InboundFifo(fifo) {}

  // Ends the claim of the slot at `tail`, which peek() has found, with `state`: kSkipped only if no
  // store of the claim's writer can come any more. Returns false if the writer has published
  // meanwhile.
  bool try_end_claim(uint64_t tail, const SlotHeader& claim, ClaimState state) noexcept {
    BP_DCHECK(claim.kind == SlotKind::kClaimed && state != ClaimState::kHeld);
    const uint64_t lap = lap_of(tail, capacity_log2_);
    uint64_t word = pack_slot(lap, claim);
    return slots_[tail & mask_].header.compare_exchange_strong(
        word, pack_slot(lap, claimed_slot(claim.sender, state)), std::memory_order_acq_rel);
  }
  // Makes the retired slots of member `sender` usable again. Requires: no store of `sender` can
  // come any more. Cost: a look at each slot.
  void free_retired_of(uint32_t sender) noexcept {
    for (uint64_t i = 0; i <= mask_; ++i) free_retired(slots_[i], sender);
  }
  // Tells writers that everything before `tail` is free.
  void set_tail(uint64_t tail) noexcept {
    tail_->store(tail, std::memory_order_release);  // pairs with try_claim
  }
};

inline bool InboundFifo::is_valid() const noexcept {
  const uint64_t first = tail();
  const uint64_t claimed_end = claims();
  if (claimed_end + 1 - first > mask_ + 2) return false;
  for (uint64_t index = first; index <= first + mask_; ++index) {
    const uint64_t word = slots_[index & mask_].header.load(std::memory_order_acquire);
    const uint64_t lap = lap_of(index, capacity_log2_);
    const bool is_taken = slot_lap(word) == lap;
    if (!is_taken && slot_lap(word) != lap_before(lap)) return false;
    if (is_taken && unpack_slot(word).kind == SlotKind::kNone) return false;
    // The writer of the next slot may not have advanced the counter yet.
    if (index != claimed_end && is_taken != (index < claimed_end)) return false;
  }
  return true;
}

inline InboundFifo::Claim InboundFifo::try_claim(uint32_t sender, uint64_t* known_tail) noexcept {
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    uint64_t index = claims_->load(std::memory_order_acquire);
    // Plus one: the reader may have skipped a slot whose writer died before it advanced the
    // counter. Then the counter is one behind the tail and must be advanced; the FIFO is not full.
    if (BP_UNLIKELY(index + 1 - *known_tail > mask_ + 1)) {
      *known_tail = tail_->load(std::memory_order_acquire);
      if (index + 1 - *known_tail > mask_ + 1) return {};
    }
    MessageSlot& slot = slots_[index & mask_];
    uint64_t word = slot.header.load(std::memory_order_acquire);
    const uint64_t lap = lap_of(index, capacity_log2_);
    if (slot_lap(word) == lap) {
      // The slot is claimed, but its writer has not advanced the counter, or never will: help.
      claims_->compare_exchange_strong(index, index + 1, std::memory_order_acq_rel);
      continue;
    }
    if (slot_lap(word) != lap_before(lap)) continue;  // the counter has moved on meanwhile
    if (const SlotHeader before = unpack_slot(word);
        BP_UNLIKELY(is_claim(before, ClaimState::kRetired))) {
      // A retired slot is not usable in this lap either: pass it on.
      slot.header.compare_exchange_strong(word, pack_slot(lap, before), std::memory_order_acq_rel);
      continue;
    }
    const uint64_t claimed = pack_slot(lap, claimed_slot(sender, ClaimState::kHeld));
    if (!slot.header.compare_exchange_strong(word, claimed, std::memory_order_acq_rel)) continue;
    const uint64_t own = index;
    claims_->compare_exchange_strong(index, own + 1, std::memory_order_acq_rel);
    return {&slot, own, sender};
  }
  return {};
}

}  // namespace bedplate
