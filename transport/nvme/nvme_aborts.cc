#include "transport/nvme/nvme_aborts.h"

#include "platform/assert.h"
#include "transport/nvme/nvme_wire.h"

namespace bedplate {

void NvmeAborts::create(NvmeCounters& counters) noexcept {
  counters_ = &counters;
  call_.completed = &NvmeAborts::completed;
  call_.aborts = this;
}

void NvmeAborts::look(const NvmeQueuePairs& pairs, NvmeQueue& admin, uint64_t now_ns) noexcept {
  if (is_in_progress_) return;
  for (NvmeQueuePair& pair : pairs.all()) {
    const uint32_t late_id = pair.take_late();
    if (late_id == NvmeQueuePair::kNone) continue;
    nvme::Command* command = admin.try_begin(call_, now_ns).command;
    BP_ASSERT(command != nullptr);  // the queue has slots for a step and an abort
    is_in_progress_ = true;
    pair_ = &pair;
    command->opcode = nvme::kAbort;
    command->word10 = pair.queue().id() | late_id << 16;
    return admin.ring();
  }
}

// Bit 0 of the result is set if the command was not aborted.
void NvmeAborts::completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept {
  NvmeAborts& self = *static_cast<Call&>(call).aborts;
  BP_DCHECK(self.is_in_progress_ && &call == &self.call_);
  self.is_in_progress_ = false;
  self.pair_->end_abort();
  if (status == nvme::kSuccess && (result & 1) == 0) self.counters_->aborts.add(1);
}

}  // namespace bedplate
