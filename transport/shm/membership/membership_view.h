// A member's view of the others, as of its last look at the members table, and its progress with
// the changes. This class keeps the state; the provider looks, and acts on the changes.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>

#include "pinned_pool/join/membership.h"
#include "platform/assert.h"
#include "transport/shm/endpoint/group_view.h"

namespace bedplate {

// The remembered state of a member, and enough of its generation to tell it from the next one. A
// number gets a new member only after every member that may still write has acknowledged the end of
// the old one. So between two looks of this member, a number gets at most one new member, but its
// state may change several times. (A member that is dead to the others but still polls may miss
// some changes; it gets no messages any more.)
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

// Threads: the polling one.
//
// Invariants: 1. This member itself is neither leaving nor buried. 2. A change to be acknowledged
// is the last one that was seen. 3. A member that is dead to the others sends nothing. (is_valid)
class MembershipView {
 public:
  // Allocates.
  void create(const GroupView& group);

  KnownMember known(uint32_t member) const noexcept { return known_[member]; }
  MemberState known_state(uint32_t member) const noexcept { return known_[member].state(); }
  // Whether another member has got this number since.
  bool is_new(uint32_t member, KnownMember now) const noexcept {
    return known_state(member) == MemberState::kFree || !now.is_generation_of(known_[member]);
  }
  void set_known(uint32_t member, KnownMember now) noexcept { known_[member] = now; }

  // Adds `member` to the leaving members: they have died, and their end was not reported yet.
  void set_leaving(uint32_t member) noexcept { set(leaving_, member, true); }
  // Calls tell(member) for each leaving member, and clears the set.
  template <typename Tell>
  void take_leaving(Tell&& tell) noexcept {
    for (uint32_t word = 0; word <= group_->member_count() / 64; ++word) {
      for (uint64_t bits = leaving_[word]; bits != 0; bits &= bits - 1) {
        tell(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
      }
      leaving_[word] = 0;
    }
  }
  // Notes whether `member` is buried: it has died, and all its messages were delivered.
  void set_buried(uint32_t member, bool is_buried) noexcept { set(buried_, member, is_buried); }
  // Whether the generation of `member` that the table has now is buried.
  bool is_buried(uint32_t member) const noexcept {
    return (buried_[member / 64] >> (member % 64) & 1) != 0 &&
           KnownMember::of(group_->members().word(member)).is_generation_of(known_[member]);
  }

  // ---- The table's changes ----

  // The table's epoch as of the last look that was complete.
  uint64_t seen_epoch() const noexcept { return seen_epoch_; }
  // Records that all changes up to `epoch` were seen, and that this member must acknowledge them.
  // Requires: is_complete(); `epoch` is new.
  void see(uint64_t epoch) noexcept;
  // Records whether the last look could handle everything; if not, it is repeated.
  void set_complete(bool is_complete) noexcept { is_complete_ = is_complete; }
  bool is_complete() const noexcept { return is_complete_; }
  // Returns 0 if there is nothing to acknowledge.
  uint64_t epoch_to_acknowledge() const noexcept { return epoch_to_acknowledge_; }
  void acknowledged() noexcept { epoch_to_acknowledge_ = 0; }

  // ---- The ends ----

  // Records that the owner has gone, or that this member is dead to the others. From here on this
  // member sends nothing.
  void lose_pool() noexcept { is_pool_gone_ = true; }
  bool is_pool_gone() const noexcept { return is_pool_gone_; }
  // Records that this member is dead to the others. From here on it stores nothing into the
  // segment. Requires: is_pool_gone().
  void die() noexcept;
  bool is_dead() const noexcept { return is_dead_; }
  // Whether somebody waits until this member has read everything, or deaths are not announced any
  // more.
  bool must_get_on() const noexcept { return is_pool_gone_ || epoch_to_acknowledge_ != 0; }

  bool is_valid() const noexcept;

 private:
  static void set(const std::unique_ptr<uint64_t[]>& words, uint32_t member, bool value) noexcept {
    const uint64_t bit = uint64_t{1} << (member % 64);
    value ? words[member / 64] |= bit : words[member / 64] &= ~bit;
  }

  const GroupView* group_ = nullptr;
  uint64_t seen_epoch_ = 0;
  uint64_t epoch_to_acknowledge_ = 0;
  bool is_complete_ = true;
  bool is_pool_gone_ = false;
  bool is_dead_ = false;
  std::unique_ptr<KnownMember[]> known_;  // as of the last look, which may be incomplete
  std::unique_ptr<uint64_t[]> leaving_;   // bits
  std::unique_ptr<uint64_t[]> buried_;    // bits
};

}  // namespace bedplate
