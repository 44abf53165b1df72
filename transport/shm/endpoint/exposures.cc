#include "transport/shm/endpoint/exposures.h"

#include <algorithm>
#include <iterator>

#include "platform/read_once.h"

namespace bedplate {

void Exposures::create(const GroupView& group, SingleCopy* single_copy) noexcept {
  BP_ASSERT(group_ == nullptr);
  group_ = &group;
  single_copy_ = single_copy;
}

const char* Exposures::serve(const PeerGeneration& who, const std::byte* body) noexcept {
  const auto offset = read_once<PayloadOffset>(body);
  const std::span<std::byte> region = group_->eager_region_of(who.peer);
  if (offset.bytes % kCacheLineBytes != 0 || sizeof(OperationRecord) > region.size() ||
      offset.bytes > region.size() - sizeof(OperationRecord)) {
    return "an operation outside its eager region";
  }
  auto* shared = reinterpret_cast<OperationRecord*>(region.data() + offset.bytes);
  const auto [kind, bytes, address, exposure, operand, expected] =
      read_once<OperationRequest>(&shared->request);
  const uint64_t data_offset = offset.bytes + sizeof(OperationRecord);
  if (kind > OperationKind::kCompareSwap || bytes > region.size() - data_offset) {
    return "an operation of an unknown kind, or longer than its eager region";
  }
  const uint64_t touched = is_atomic(kind) ? sizeof(uint64_t) : bytes;
  OperationState state = OperationState::kRefused;
  if (find(who, exposure, address, touched) != nullptr &&
      (!is_atomic(kind) || address % sizeof(uint64_t) == 0)) {
    std::byte* data = region.data() + data_offset;
    if (kind == OperationKind::kPut) copy_bytes(pointer_to(address), data, bytes);
    else if (kind == OperationKind::kGet) copy_bytes(data, pointer_to(address), bytes);
    else shared->result = apply_atomic(kind, pointer_to(address), operand, expected);
    state = OperationState::kDone;
  }
  shared->state.store(state, std::memory_order_release);
  return nullptr;
}

const Exposure* Exposures::find(const PeerGeneration& who, uint64_t kind, uint64_t address,
                                uint64_t bytes) const noexcept {
  const uint32_t index = exposure_index(kind);
  if (index >= kExposureCountMax) return nullptr;
  const Exposure& exposure = exposures_[index];
  if (exposure.use != exposure_use(kind) || exposure.peer != who.peer ||
      exposure.generation != who.generation || !exposure.has(address, bytes)) {
    return nullptr;
  }
  return &exposure;
}

Result<RemoteMemory> Exposures::expose(const PeerGeneration& who, std::span<std::byte> memory) {
  BP_ASSERT(group_->is_peer(who.peer));
  const Segment* segment = group_->shared_segment(memory.data(), memory.size());
  const bool is_pool = segment != nullptr;
  Error error = error_while("exposing memory to member %u", who.peer);
  if (is_pool && !segment->is_writable) {
    error.set_answer("%s is mapped read-only here", segment->owner.text);
    return error.set_cure("let its owner expose it, or grant it writable ([[process]] write)");
  }
  for (uint32_t i = 0; i < kExposureCountMax; ++i) {
    Exposure& exposure = exposures_[i];
    if (exposure.peer != UINT32_MAX) continue;
    RemoteMemory remote = {reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, 0};
    // A peer that may write to this segment of the pool itself needs no key.
    const bool has_key = single_copy_ != nullptr &&
                         !(is_pool && group_->members().may_write(who.peer, segment->number));
    if (has_key) {
      auto range = single_copy_->expose(memory.data(), memory.size(), true);
      if (!range.ok()) return range.error();
      remote.key = range.value().key;
    }
    exposure = {remote.address, remote.bytes, who.generation, who.peer, exposure.use + 1, has_key};
    BP_DCHECK_SLOW(is_valid());
    remote.kind = pack_exposure(is_pool, i, exposure.use);
    return remote;
  }
  error.set_answer("%u pieces are exposed already", kExposureCountMax);
  return error.set_cure("withdraw some");
}

void Exposures::withdraw(uint32_t peer, const RemoteMemory& memory) noexcept {
  const uint32_t index = exposure_index(memory.kind);
  BP_ASSERT(index < kExposureCountMax);
  Exposure& exposure = exposures_[index];
  BP_ASSERT(exposure.peer == peer && exposure.use == exposure_use(memory.kind));
  if (exposure.has_key) {
    single_copy_->withdraw({memory.address, memory.bytes, memory.key, 1});
  }
  exposure.peer = UINT32_MAX;
  BP_DCHECK_SLOW(is_valid());
}

bool Exposures::is_valid() const noexcept {
  return std::all_of(std::begin(exposures_), std::end(exposures_), [&](const Exposure& exposure) {
    return exposure.peer == UINT32_MAX || (group_->is_peer(exposure.peer) && exposure.use > 0);
  });
}

}  // namespace bedplate
