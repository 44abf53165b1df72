// One submission queue with its completion queue: commands in, completions out.
//
// Both are in the pool, where the controller reads and writes them. A command has a slot from
// try_begin() to its completion. There are fewer slots than entries, so neither queue can overflow.
// A completion that names no command under way is only counted: it is a defect of the controller.
//
// Invariants, checked by is_valid(): 1. Each slot is free or has a call, and outstanding() counts
// the calls. 2. Tail and head are indices of entries. Checked by release(): 3. A command ends
// once.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "transport/nvme/nvme_wire.h"

namespace bedplate {

// The callback at the end of a command; several commands may share one.
struct NvmeCall {
  // `status`: nvme::kSuccess, or the controller's status, or nvme::kNoAnswer. Only poll() and
  // fail_all() call it.
  void (*completed)(NvmeCall& call, uint16_t status, uint32_t result) noexcept = nullptr;
};

class NvmeQueue {
 public:
  static constexpr uint32_t kEntryCountMin = 4;
  static constexpr uint32_t kEntryCountMax = 1024;

  // The memory that it needs. `has_lists`: each command has a page for its PRP list.
  static uint64_t bytes_for(uint32_t entry_count, bool has_lists) noexcept;

  // Requires: `entry_count` is kEntryCountMin to kEntryCountMax; `memory` is page aligned and has
  // bytes_for(); `registers` include the doorbells of queue `id`, each `doorbell_bytes` long. Both
  // outlive this.
  void create(uint16_t id, uint32_t entry_count, bool has_lists, std::span<std::byte> memory,
              volatile std::byte* registers, uint32_t doorbell_bytes) noexcept;
  // Resets it to its initial state, for a restarted controller. Requires: nothing is outstanding.
  void clear() noexcept;

  struct Entry {
    nvme::Command* command = nullptr;  // all zeros, but for its id; nullptr: no slot is free
    std::byte* list = nullptr;         // the command's page; not valid without has_lists
  };
  // Returns a command for the caller to fill in. The next ring() submits it. `call` stays in place
  // until it is called.
  Entry try_begin(NvmeCall& call, uint64_t now_ns) noexcept;
  // Tells the controller of all begun commands, and of the completions taken. Cost: one register
  // write for each of the two, if there are any. No other function writes registers.
  void ring() noexcept;
  // Takes at most `budget` completions, and calls back for their commands. Returns their number,
  // with bad ones. The controller has space for the completions of all outstanding commands, even
  // before ring() tells it of those taken.
  uint32_t poll(uint32_t budget) noexcept;
  // Calls back for all outstanding commands, with nvme::kNoAnswer. Requires: the controller has no
  // access to memory any more, or is disabled.
  void fail_all() noexcept;

  static constexpr uint32_t kNone = ~uint32_t{0};
  // The id of a command that began, or was marked, before `before_ns`; kNone: no command is
  // overdue. Cost: a look at each slot.
  uint32_t find_overdue(uint64_t before_ns) const noexcept;
  bool is_marked(uint32_t id) const noexcept {
    BP_DCHECK(id < slot_count());
    return slots_[id].is_marked;
  }
  bool is_outstanding(uint32_t id) const noexcept {
    BP_DCHECK(id < slot_count());
    return slots_[id].call != nullptr;
  }
  // From now on no other command gets the id, even if its command ends: an abort of that id may be
  // in progress. Requires: the command is outstanding, and no id is withheld.
  void withhold(uint32_t id) noexcept;
  // The id that is withheld, or kNone.
  uint32_t withheld() const noexcept { return withheld_; }
  void end_withholding() noexcept;
  // Restarts the command's time limit; is_marked() is true until the command ends. Requires: it is
  // outstanding.
  void mark(uint32_t id, uint64_t now_ns) noexcept;

  uint16_t id() const noexcept { return id_; }
  uint32_t entry_count() const noexcept { return entry_count_; }
  uint32_t outstanding() const noexcept { return outstanding_; }
  // The highest number of outstanding commands so far.
  uint32_t outstanding_peak() const noexcept { return outstanding_peak_; }
  uint64_t bad_completions() const noexcept { return bad_completions_; }
  const std::byte* submissions() const noexcept {
    return reinterpret_cast<const std::byte*>(commands_);
  }
  const std::byte* completions() const noexcept {
    return reinterpret_cast<const std::byte*>(completions_);
  }

  bool is_valid() const noexcept;

 private:
  struct Slot {
    NvmeCall* call = nullptr;  // nullptr: the slot is free
    uint64_t began_ns = 0;
    uint16_t next_free = 0;
    bool is_marked = false;
  };

  uint32_t slot_count() const noexcept { return entry_count_ - 1; }
  bool is_withheld_unused() const noexcept {
    return withheld_ != kNone && slots_[withheld_].call == nullptr;
  }
  NvmeCall& release(uint32_t id) noexcept;
  void push_free(uint32_t id) noexcept;

  nvme::Command* commands_ = nullptr;
  nvme::Completion* completions_ = nullptr;
  std::byte* lists_ = nullptr;
  Slot* slots_ = nullptr;
  volatile uint32_t* submission_doorbell_ = nullptr;
  volatile uint32_t* completion_doorbell_ = nullptr;
  uint32_t entry_count_ = 0;
  uint32_t tail_ = 0;
  uint32_t rung_tail_ = 0;
  uint32_t head_ = 0;
  uint32_t rung_head_ = 0;
  uint32_t outstanding_ = 0;
  uint32_t outstanding_peak_ = 0;
  uint32_t withheld_ = kNone;
  uint16_t first_free_ = 0;
  uint16_t phase_ = 1;
  uint16_t id_ = 0;
  uint64_t bad_completions_ = 0;
};

}  // namespace bedplate
