#include "apps/blockd/stores/nvme_store.h"

namespace bedplate {
namespace {

NvmeAction action_of(StoreAction action) noexcept {
  switch (action) {
    case StoreAction::kRead: return NvmeAction::kRead;
    case StoreAction::kWrite: return NvmeAction::kWrite;
    case StoreAction::kFlush: return NvmeAction::kFlush;
    case StoreAction::kWriteZeroes: return NvmeAction::kWriteZeroes;
    case StoreAction::kDiscard: return NvmeAction::kDeallocate;
    case StoreAction::kExtents: break;
  }
  BP_ASSERT(!"a drive reports no extents");
  return NvmeAction::kRead;
}

}  // namespace

// zeroes_fast: for Write Zeroes the drive transfers no data.
NvmeStore::NvmeStore(NvmeDriveQueue& queue, const NvmeNamespace& space, uint64_t bytes) noexcept
    : VolumeStore(nullptr, bytes != 0 ? bytes : bytes_of(space), 1U << space.block_log2,
                  {.has_extents = false, .zeroes_fast = space.zero_blocks_max != 0}),
      queue_(queue),
      space_(space),
      may_grow_(bytes == 0) {
  BP_ASSERT(this->bytes() <= bytes_of(space_));
}

void NvmeStore::begin(StoreOperation& operation) noexcept {
  NvmeOperation& asked = operation.nvme;
  asked.action = action_of(operation.action);
  asked.is_durable = operation.is_durable;
  asked.gives_room_back = !operation.keeps_room;
  asked.space = &space_;
  asked.memory = operation.memory;
  asked.first_block = operation.offset >> space_.block_log2;
  asked.block_count = operation.bytes >> space_.block_log2;
  asked.done = &NvmeStore::ended;
  asked.context = &operation;
  queue_.begin(asked);
}

void NvmeStore::ended(void* context, int error) noexcept {
  auto& operation = *static_cast<StoreOperation*>(context);
  const bool is_read = operation.action == StoreAction::kRead;
  const auto bytes = static_cast<int64_t>(is_read ? operation.bytes : 0);
  operation.completed(operation.context, error != 0 ? -error : bytes);
}

void NvmeStore::look_at_size() noexcept {
  if (may_grow_ && bytes_of(space_) > bytes()) grow_to(bytes_of(space_));
}

}  // namespace bedplate
