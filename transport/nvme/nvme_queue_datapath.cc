#include "transport/nvme/nvme_queue_datapath.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "platform/cache_line.h"
#include "platform/units.h"
#include "transport/nvme/nvme_prp_datapath.h"

namespace bedplate {

uint64_t NvmeQueue::bytes_for(uint32_t entry_count, bool has_lists) noexcept {
  const uint64_t lists = has_lists ? uint64_t{entry_count} * kNvmePageBytes : 0;
  return align_up(entry_count * sizeof(nvme::Command), kNvmePageBytes) +
         align_up(entry_count * sizeof(nvme::Completion), kNvmePageBytes) + lists +
         align_up(entry_count * sizeof(Slot), kNvmePageBytes);
}

void NvmeQueue::create(uint16_t id, uint32_t entry_count, bool has_lists,
                       std::span<std::byte> memory, volatile std::byte* registers,
                       uint32_t doorbell_bytes) noexcept {
  BP_ASSERT(entry_count >= kEntryCountMin && entry_count <= kEntryCountMax);
  BP_ASSERT(memory.size() >= bytes_for(entry_count, has_lists));
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kNvmePageBytes == 0);
  id_ = id;
  entry_count_ = entry_count;
  std::byte* next = memory.data();
  commands_ = reinterpret_cast<nvme::Command*>(next);
  next += align_up(entry_count * sizeof(nvme::Command), kNvmePageBytes);
  completions_ = reinterpret_cast<nvme::Completion*>(next);
  next += align_up(entry_count * sizeof(nvme::Completion), kNvmePageBytes);
  lists_ = has_lists ? next : nullptr;
  if (has_lists) next += uint64_t{entry_count} * kNvmePageBytes;
  slots_ = reinterpret_cast<Slot*>(next);
  for (uint32_t i = 0; i < slot_count(); ++i) new (&slots_[i]) Slot;
  const auto doorbell = [&](uint32_t number) {
    return reinterpret_cast<volatile uint32_t*>(registers + nvme::kDoorbells +
                                                uint64_t{number} * doorbell_bytes);
  };
  submission_doorbell_ = doorbell(2U * id);
  completion_doorbell_ = doorbell(2U * id + 1);
  clear();
}

void NvmeQueue::clear() noexcept {
  BP_ASSERT(outstanding_ == 0);
  std::memset(static_cast<void*>(commands_), 0, entry_count_ * sizeof(nvme::Command));
  std::memset(static_cast<void*>(completions_), 0, entry_count_ * sizeof(nvme::Completion));
  for (uint32_t i = 0; i < slot_count(); ++i) slots_[i].next_free = static_cast<uint16_t>(i + 1);
  first_free_ = 0;
  withheld_ = kNone;
  tail_ = rung_tail_ = head_ = rung_head_ = 0;
  phase_ = 1;
}

bool NvmeQueue::is_valid() const noexcept {
  uint32_t free_count = 0;
  for (uint32_t i = first_free_; i < slot_count(); i = slots_[i].next_free) {
    if (slots_[i].call != nullptr || ++free_count > slot_count()) return false;
  }
  const auto has_call = [](const Slot& slot) { return slot.call != nullptr; };
  return free_count + outstanding_ + (is_withheld_unused() ? 1 : 0) == slot_count() &&
         std::count_if(slots_, slots_ + slot_count(), has_call) == outstanding_ &&
         tail_ < entry_count_ && rung_tail_ < entry_count_ && head_ < entry_count_ &&
         rung_head_ < entry_count_;
}

NvmeQueue::Entry NvmeQueue::try_begin(NvmeCall& call, uint64_t now_ns) noexcept {
  BP_DCHECK_SLOW(is_valid());
  const uint32_t id = first_free_;
  if (id >= slot_count()) return {};
  Slot& slot = slots_[id];
  BP_DCHECK(slot.call == nullptr && call.completed != nullptr);
  first_free_ = slot.next_free;
  slot.call = &call;
  slot.began_ns = now_ns;
  slot.is_marked = false;
  outstanding_peak_ = std::max(outstanding_peak_, ++outstanding_);
  nvme::Command* command = new (&commands_[tail_]) nvme::Command;
  command->id = static_cast<uint16_t>(id);
  if (++tail_ == entry_count_) tail_ = 0;
  BP_DCHECK_SLOW(is_valid());
  return {command, lists_ == nullptr ? nullptr : lists_ + uint64_t{id} * kNvmePageBytes};
}

// Rings the completion doorbell first, as new commands bring more completions. The commands are
// written before the submission doorbell: the controller reads them once it has seen it.
void NvmeQueue::ring() noexcept {
  if (head_ != rung_head_) *completion_doorbell_ = rung_head_ = head_;
  if (tail_ == rung_tail_) return;
  BP_DCHECK(tail_ < entry_count_);
  rung_tail_ = tail_;
  std::atomic_thread_fence(std::memory_order_release);
  *submission_doorbell_ = tail_;
}

NvmeCall& NvmeQueue::release(uint32_t id) noexcept {
  BP_DCHECK(id < slot_count());
  Slot& slot = slots_[id];
  BP_ASSERT(slot.call != nullptr && outstanding_ > 0);
  NvmeCall& call = *slot.call;
  slot.call = nullptr;
  slot.is_marked = false;
  --outstanding_;
  if (id != withheld_) push_free(id);
  return call;
}

void NvmeQueue::push_free(uint32_t id) noexcept {
  slots_[id].next_free = first_free_;
  first_free_ = static_cast<uint16_t>(id);
}

void NvmeQueue::withhold(uint32_t id) noexcept {
  BP_ASSERT(withheld_ == kNone && is_outstanding(id));
  withheld_ = id;
}

void NvmeQueue::end_withholding() noexcept {
  if (is_withheld_unused()) push_free(withheld_);
  withheld_ = kNone;
  BP_DCHECK_SLOW(is_valid());
}

uint32_t NvmeQueue::poll(uint32_t budget) noexcept {
  // Without an outstanding command completions are ignored. So the head stays, and ring() writes no
  // register of a controller that is gone.
  if (outstanding_ == 0) return 0;
  uint32_t count = 0;
  for (; count < budget; ++count) {
    nvme::Completion& entry = completions_[head_];
    // Pairs with the controller, which writes the phase bit last.
    const uint16_t status = std::atomic_ref(entry.status).load(std::memory_order_acquire);
    if ((status & 1) != phase_) break;
    const uint32_t id = entry.command_id;
    const uint32_t result = entry.result;
    if (++head_ == entry_count_) {
      head_ = 0;
      phase_ ^= 1;
    }
    if (BP_UNLIKELY(id >= slot_count() || slots_[id].call == nullptr)) {
      ++bad_completions_;
      continue;
    }
    NvmeCall& call = release(id);
    call.completed(call, status >> 1, result);
  }
  BP_DCHECK_SLOW(is_valid());
  return count;
}

void NvmeQueue::fail_all() noexcept {
  for (uint32_t id = 0; id < slot_count(); ++id) {
    if (slots_[id].call == nullptr) continue;
    NvmeCall& call = release(id);
    call.completed(call, nvme::kNoAnswer, 0);
  }
  BP_DCHECK_SLOW(is_valid());
}

uint32_t NvmeQueue::find_overdue(uint64_t before_ns) const noexcept {
  if (outstanding_ == 0) return kNone;
  for (uint32_t id = 0; id < slot_count(); ++id) {
    if (slots_[id].call != nullptr && slots_[id].began_ns < before_ns) return id;
  }
  return kNone;
}

void NvmeQueue::mark(uint32_t id, uint64_t now_ns) noexcept {
  BP_ASSERT(id < slot_count() && slots_[id].call != nullptr);
  slots_[id].is_marked = true;
  slots_[id].began_ns = now_ns;
}

}  // namespace bedplate
