// The endpoints of a member by their peers' places: most members speak with few of very many, so
// memory is taken for 64 places at a time, when the first of them is spoken with.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/result.h"
#include "transport/shm/endpoint/shm_endpoint.h"
#include "transport/shm/membership/group_layout.h"
#include "transport/shm/membership/membership_view.h"

namespace bedplate {

// Threads: the shard's.
//
// Invariants: 1. An endpoint is at the place of its peer's number. 2. The member has none to
// itself. (is_valid)
class EndpointTable {
 public:
  // `parts` and `view` outlive this. Allocates.
  void create(ShmParts& parts, const MembershipView& view);

  // nullptr: there is none yet.
  ShmEndpoint* at(uint32_t peer) const noexcept {
    BP_DCHECK(peer / kChunkCount < chunk_count_);
    const auto& chunk = chunks_[peer / kChunkCount];
    return chunk ? chunk[peer % kChunkCount].get() : nullptr;
  }
  // The endpoint to the member that is in the peer's place now, made and opened if need be.
  // nullptr: there is no memory for it. Allocates, once for each place.
  ShmEndpoint* try_make(uint32_t peer) noexcept;
  // The same without opening it: to have the memory.
  ShmEndpoint* try_add(uint32_t peer) noexcept;

  template <typename Body>
  void for_each(Body&& body) const noexcept {
    for (const auto& chunk : std::span(chunks_.get(), chunk_count_)) {
      for (uint32_t i = 0; chunk && i < kChunkCount; ++i) {
        if (chunk[i]) body(*chunk[i]);
      }
    }
  }

  bool has_news() const noexcept { return copy_news_ == CopyNews::kFailed; }
  // Why a peer's memory could not be opened: the first such peer's error. nullptr: there is none,
  // or it was asked for already.
  const Error* take_copy_error() noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kChunkCount = 64;
  using Chunk = std::unique_ptr<std::unique_ptr<ShmEndpoint>[]>;

  ShmParts* parts_ = nullptr;
  const MembershipView* view_ = nullptr;
  uint32_t chunk_count_ = 0;
  std::unique_ptr<Chunk[]> chunks_;
  enum class CopyNews : uint8_t { kNone, kFailed, kTold };
  CopyNews copy_news_ = CopyNews::kNone;
  Error copy_error_;
};

}  // namespace bedplate
