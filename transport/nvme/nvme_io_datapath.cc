#include "transport/nvme/nvme_io_datapath.h"

#include <algorithm>
#include <cerrno>

#include "transport/nvme/nvme_prp_datapath.h"

namespace bedplate {

int errno_of_status(uint16_t status) noexcept {
  if (status == nvme::kNoAnswer) return EIO;
  switch (status & nvme::kCodeMask) {
    case nvme::kSuccess: return 0;
    case nvme::kInvalidOpcode: return EOPNOTSUPP;
    case nvme::kCapacityExceeded: return ENOSPC;
    case nvme::kWriteProtected:
    case nvme::kReadOnlyRange: return EROFS;
    default: return EIO;
  }
}

bool NvmeIo::is_valid() const noexcept {
  if (!is_open_ && !waiting_.is_empty()) return false;
  const auto waits = [this](const NvmeOperation& one) {
    const bool has_begun = one.blocks_left != one.block_count;
    return one.blocks_left > 0 && one.blocks_left <= one.block_count &&
           (!has_begun || &one == waiting_.first());
  };
  const auto has_ended = [](const NvmeOperation& one) {
    return one.command_count == 0 && one.blocks_left == 0;
  };
  return waiting_.count(SIZE_MAX, waits) && ended_.count(SIZE_MAX, has_ended);
}

void NvmeIo::end_later(NvmeOperation& operation, int error) noexcept {
  BP_DCHECK(operation.command_count == 0);
  operation.blocks_left = 0;
  operation.error = error;
  ended_.push(operation);
}

// An operation with commands under way ends with the last of them, or with the queue.
void NvmeIo::close() noexcept {
  is_open_ = false;
  while (!waiting_.is_empty()) {
    NvmeOperation& operation = waiting_.pop();
    operation.blocks_left = 0;
    operation.error = EIO;
    if (operation.command_count == 0) end_later(operation, EIO);
  }
  BP_DCHECK_SLOW(is_valid());
}

void NvmeIo::begin(NvmeOperation& operation, uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(operation.command_count == 0 && operation.blocks_left == 0);
  BP_DCHECK(operation.done != nullptr && operation.space != nullptr);
  operation.completed = &NvmeIo::completed;
  operation.io = this;
  operation.error = 0;
  operation.command_count = 0;
  if (BP_UNLIKELY(!is_open_)) return end_later(operation, EIO);
  const NvmeNamespace& space = *operation.space;
  switch (operation.action) {
    case NvmeAction::kFlush: operation.block_count = 1; break;
    case NvmeAction::kWriteZeroes:
      if (space.zero_blocks_max == 0) return end_later(operation, EOPNOTSUPP);
      break;
    case NvmeAction::kDeallocate:
      if (!space.can_deallocate) return end_later(operation, EOPNOTSUPP);
      break;
    default: break;
  }
  BP_DCHECK(operation.block_count > 0);
  operation.blocks_left = operation.block_count;
  if (waiting_.is_empty() && issue(operation, now_ns)) return;
  waiting_.push(operation);
}

// Returns true if commands for all of its blocks have begun.
bool NvmeIo::issue(NvmeOperation& operation, uint64_t now_ns) noexcept {
  BP_DCHECK(is_open_ && operation.blocks_left > 0 && operation.io == this);
  do {
    const NvmeQueue::Entry entry = queue_.try_begin(operation, now_ns);
    if (entry.command == nullptr) return false;
    fill(operation, entry);
    ++operation.command_count;
    ++command_count_;
  } while (operation.blocks_left > 0);
  return true;
}

void NvmeIo::fill(NvmeOperation& operation, const NvmeQueue::Entry& entry) noexcept {
  const NvmeNamespace& space = *operation.space;
  nvme::Command& command = *entry.command;
  const uint64_t done_blocks = operation.block_count - operation.blocks_left;
  const uint64_t first = operation.first_block + done_blocks;
  uint64_t count = operation.blocks_left;
  command.space = space.id;
  switch (operation.action) {
    case NvmeAction::kRead:
    case NvmeAction::kWrite: {
      const bool is_write = operation.action == NvmeAction::kWrite;
      count = std::min<uint64_t>(count, space.transfer_blocks_max);
      command.opcode = is_write ? nvme::kWrite : nvme::kRead;
      command.word12 = static_cast<uint32_t>(count - 1) |
                       (is_write && operation.is_durable ? nvme::kForceUnitAccess : 0);
      set_pages(command, operation.memory + (done_blocks << space.block_log2),
                count << space.block_log2, entry.list);
      break;
    }
    case NvmeAction::kFlush: command.opcode = nvme::kFlush; break;
    case NvmeAction::kWriteZeroes:
      count = std::min<uint64_t>(count, space.zero_blocks_max);
      command.opcode = nvme::kWriteZeroes;
      command.word12 = static_cast<uint32_t>(count - 1) |
                       (operation.gives_room_back ? nvme::kDeallocateZeroes : 0);
      break;
    case NvmeAction::kDeallocate: {
      count = std::min<uint64_t>(count, nvme::kBlocksPerRangeMax);
      auto* range = reinterpret_cast<nvme::Range*>(entry.list);
      *range = {0, static_cast<uint32_t>(count), first};
      command.opcode = nvme::kDatasetManagement;
      command.prp1 = reinterpret_cast<uintptr_t>(range);
      command.word11 = nvme::kDeallocate;  // prp1 has one range: word 10 has 0, one less
      break;
    }
  }
  if (operation.action != NvmeAction::kFlush && operation.action != NvmeAction::kDeallocate) {
    command.word10 = static_cast<uint32_t>(first);
    command.word11 = static_cast<uint32_t>(first >> 32);
  }
  BP_DCHECK(count > 0 && count <= operation.blocks_left);
  operation.blocks_left -= count;
}

void NvmeIo::completed(NvmeCall& call, uint16_t status, uint32_t) noexcept {
  auto& operation = static_cast<NvmeOperation&>(call);
  operation.io->command_ended(operation, status);
}

// The operation keeps its first error. After an error its remaining blocks are skipped.
void NvmeIo::command_ended(NvmeOperation& operation, uint16_t status) noexcept {
  BP_ASSERT(operation.command_count > 0);
  --operation.command_count;
  if (BP_UNLIKELY(status != nvme::kSuccess)) {
    ++error_count_;
    if (operation.error == 0) operation.error = errno_of_status(status);
    if (operation.blocks_left > 0) {
      BP_ASSERT(waiting_.first() == &operation);  // only the first may have begun in part
      waiting_.pop();
      operation.blocks_left = 0;
    }
  }
  if (operation.command_count == 0 && operation.blocks_left == 0) {
    operation.done(operation.context, operation.error);
  }
}

uint32_t NvmeIo::poll(uint32_t budget, uint64_t now_ns) noexcept {
  BP_DCHECK_SLOW(is_valid());
  uint32_t count = queue_.poll(budget);
  if (BP_UNLIKELY(!ended_.is_empty())) {
    auto ended = ended_.take();
    for (; !ended.is_empty(); ++count) {
      NvmeOperation& operation = ended.pop();
      operation.done(operation.context, operation.error);
    }
  }
  while (!waiting_.is_empty() && issue(*waiting_.first(), now_ns)) waiting_.pop();
  if (BP_LIKELY(is_open_)) queue_.ring();
  BP_DCHECK_SLOW(is_valid());
  return count;
}

}  // namespace bedplate
