// A member's view of the others, as of its last look at the members table, and its progress with
// the changes. The provider looks, and acts on the changes; here are its books.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

#include "pinned_pool/join/membership.h"
#include "platform/assert.h"
#include "transport/shm/endpoint/shm_place.h"

namespace bedplate {

// A member as it is remembered: its state, and enough of its generation to tell it from the next
// one. A place changes hands only after every living and joining member has acknowledged that it
// was left, so between two looks of ours there is one change at most. (A member that is dead to the
// others and polls all the same may miss some; nothing is for it any more.)
struct KnownMember {
  uint8_t bits = 0;

  static KnownMember of(const MemberWord& word) noexcept {
    return {static_cast<uint8_t>(word.generation << 4 | static_cast<uint8_t>(word.state))};
  }
  MemberState state() const noexcept { return static_cast<MemberState>(bits & 15); }
  bool is_dead() const noexcept {
    return state() == MemberState::kDead || state() == MemberState::kQuiet;
  }
  bool is_generation_of(const KnownMember& other) const noexcept {
    return bits >> 4 == other.bits >> 4;
  }
  bool operator==(const KnownMember&) const noexcept = default;
};

// Threads: the one that polls.
//
// Invariants: 1. This member itself neither leaves nor is buried. 2. A change that is to be
// acknowledged is the last one that was seen. 3. A member that is dead to the others sends nothing.
// (is_valid)
class MembershipView {
 public:
  // Allocates.
  void create(const ShmPlace& place);

  KnownMember known(uint32_t member) const noexcept { return known_[member]; }
  MemberState known_state(uint32_t member) const noexcept { return known_[member].state(); }
  // Whether another member has come into its place since.
  bool is_new(uint32_t member, KnownMember now) const noexcept {
    return known_state(member) == MemberState::kFree || !now.is_generation_of(known_[member]);
  }
  void set_known(uint32_t member, KnownMember now) noexcept { known_[member] = now; }

  // Those that have died and were not told of yet.
  void set_leaving(uint32_t member) noexcept { set(leaving_, member, true); }
  // Calls tell(member) for each, and forgets them.
  template <typename Tell>
  void take_leaving(Tell&& tell) noexcept {
    for (uint32_t word = 0; word <= place_->member_count() / 64; ++word) {
      for (uint64_t bits = leaving_[word]; bits != 0; bits &= bits - 1) {
        tell(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
      }
      leaving_[word] = 0;
    }
  }
  // Those that have died, and all of which was delivered.
  void set_buried(uint32_t member, bool is_buried) noexcept { set(buried_, member, is_buried); }
  // The same of the one that the table has now.
  bool is_buried(uint32_t member) const noexcept {
    return (buried_[member / 64] >> (member % 64) & 1) != 0 &&
           KnownMember::of(place_->members().word(member)).is_generation_of(known_[member]);
  }

  // ---- The table's changes ----

  // The table's epoch as of the last look that was complete.
  uint64_t seen_epoch() const noexcept { return seen_epoch_; }
  // All that has changed up to `epoch` was seen. It is to be acknowledged.
  void see(uint64_t epoch) noexcept;
  // A look that found all that it takes; else it is repeated.
  void set_complete(bool is_complete) noexcept { is_complete_ = is_complete; }
  bool is_complete() const noexcept { return is_complete_; }
  uint64_t epoch_to_acknowledge() const noexcept { return epoch_to_acknowledge_; }
  void acknowledged() noexcept { epoch_to_acknowledge_ = 0; }

  // ---- The ends ----

  // The owner has gone, or this member is dead to the others: it sends nothing more.
  void lose_pool() noexcept { is_pool_gone_ = true; }
  bool is_pool_gone() const noexcept { return is_pool_gone_; }
  // This member is dead to the others: it writes nothing more.
  void die() noexcept;
  bool is_dead() const noexcept { return is_dead_; }
  // Whether somebody waits until all that has come so far is read, or deaths are not announced any
  // more.
  bool must_get_on() const noexcept { return is_pool_gone_ || epoch_to_acknowledge_ != 0; }

  bool is_valid() const noexcept;

 private:
  static void set(const std::unique_ptr<uint64_t[]>& words, uint32_t member, bool value) noexcept {
    const uint64_t bit = uint64_t{1} << (member % 64);
    value ? words[member / 64] |= bit : words[member / 64] &= ~bit;
  }

  const ShmPlace* place_ = nullptr;
  uint64_t seen_epoch_ = 0;
  uint64_t epoch_to_acknowledge_ = 0;
  bool is_complete_ = true;
  bool is_pool_gone_ = false;
  bool is_dead_ = false;
  std::unique_ptr<KnownMember[]> known_;  // as of seen_epoch_
  std::unique_ptr<uint64_t[]> leaving_;   // bits
  std::unique_ptr<uint64_t[]> buried_;    // bits
};

}  // namespace bedplate
