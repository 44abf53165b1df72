// The target's side of puts, gets and atomics: what it exposes, and what it does there for others.
#include "platform/read_once.h"
#include "transport/shm/shm_provider.h"

namespace bedplate {

void ShmProvider::handle_operation(ShmEndpoint& from, const std::byte* body) noexcept {
  const auto place = read_once<PayloadPlace>(body);
  const std::span<std::byte> region = segment_.eager_region(from.peer_);
  if (kind_ == GroupKind::kExchange || place.offset % kCacheLineBytes != 0 ||
      sizeof(OperationRecord) > region.size() ||
      place.offset > region.size() - sizeof(OperationRecord)) {
    return cut_off(from, "an operation outside its eager region");
  }
  auto* shared = reinterpret_cast<OperationRecord*>(region.data() + place.offset);
  const auto [kind, bytes, address, exposure, operand, expected] =
      read_once<OperationRequest>(&shared->request);
  const uint64_t data_offset = place.offset + sizeof(OperationRecord);
  if (kind > OperationKind::kCompareSwap || bytes > region.size() - data_offset) {
    return cut_off(from, "an operation of no kind, or longer than its eager region");
  }
  const uint64_t touched = is_atomic(kind) ? sizeof(uint64_t) : bytes;
  OperationState state = OperationState::kRefused;
  const SpinGuard guard(lock_, is_threaded_);  // to the end: whoever withdraws waits for it
  if (find_exposure(from, exposure, address, touched) != nullptr &&
      (!is_atomic(kind) || address % sizeof(uint64_t) == 0)) {
    std::byte* data = region.data() + data_offset;
    if (kind == OperationKind::kPut) copy_bytes(pointer_to(address), data, bytes);
    else if (kind == OperationKind::kGet) copy_bytes(data, pointer_to(address), bytes);
    else shared->result = apply_atomic(kind, pointer_to(address), operand, expected);
    state = OperationState::kDone;
  }
  shared->state.store(state, std::memory_order_release);
  from.bell_.ring();
}

const Exposure* ShmProvider::find_exposure(const ShmEndpoint& peer, uint64_t kind, uint64_t address,
                                           uint64_t bytes) const noexcept {
  const uint32_t index = exposure_index(kind);
  if (index >= kExposureCountMax) return nullptr;
  const Exposure& exposure = exposures_[index];
  if (exposure.use != exposure_use(kind) || exposure.peer != peer.peer_ ||
      exposure.generation != peer.generation_ || !exposure.has(address, bytes)) {
    return nullptr;
  }
  return &exposure;
}

Result<RemoteMemory> ShmEndpoint::expose(std::span<std::byte> memory) {
  const SpinGuard own_guard(lock_, provider_.is_threaded_);  // whose generation it is
  const SpinGuard guard(provider_.lock_, provider_.is_threaded_);
  const Segment* segment = provider_.shared_segment(memory.data(), memory.size());
  const bool is_pool = segment != nullptr;
  Error error;
  error.set_doing("exposing memory to member %u", peer_);
  if (is_pool && !segment->is_writable) {
    error.set_answer("%s is mapped read-only here", segment->owner.text);
    return error.set_cure("let its owner expose it, or grant it writable ([[process]] write)");
  }
  for (uint32_t i = 0; i < kExposureCountMax; ++i) {
    Exposure& exposure = provider_.exposures_[i];
    if (exposure.peer != UINT32_MAX) continue;
    RemoteMemory remote = {reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, 0};
    if (!is_pool && provider_.single_copy_ != nullptr) {
      auto range = provider_.single_copy_->expose(memory.data(), memory.size(), true);
      if (!range.ok()) return range.error();
      remote.key = range.value().key;
    }
    exposure = {remote.address, remote.bytes, remote.key, generation_, peer_, exposure.use + 1};
    remote.kind = pack_exposure(is_pool, i, exposure.use);
    return remote;
  }
  error.set_answer("%u pieces are exposed already", kExposureCountMax);
  return error.set_cure("withdraw some");
}

void ShmEndpoint::withdraw(const RemoteMemory& memory) noexcept {
  const SpinGuard guard(provider_.lock_, provider_.is_threaded_);
  const uint32_t index = exposure_index(memory.kind);
  BP_ASSERT(index < kExposureCountMax);
  Exposure& exposure = provider_.exposures_[index];
  BP_ASSERT(exposure.peer == peer_ && exposure.use == exposure_use(memory.kind));
  if (!is_pool_memory(memory.kind) && provider_.single_copy_ != nullptr) {
    provider_.single_copy_->withdraw({memory.address, memory.bytes, memory.key, 1});
  }
  exposure.peer = UINT32_MAX;
}

}  // namespace bedplate
