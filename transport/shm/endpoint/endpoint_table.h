// The endpoints of a member, by peer number. Most members talk to few of very many peers. So an
// endpoint is allocated when the member first talks to that peer, and the pointers to endpoints in
// chunks of 64.
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
// Invariants: 1. An endpoint's index is its peer's number. 2. The member has no endpoint to itself.
// (is_valid)
class EndpointTable {
 public:
  // `parts` and `view` outlive this. Allocates.
  void create(ShmParts& parts, const MembershipView& view);

  // Returns nullptr if there is none yet.
  ShmEndpoint* at(uint32_t peer) const noexcept {
    BP_DCHECK(peer / kChunkCount < chunk_count_);
    const auto& chunk = chunks_[peer / kChunkCount];
    return chunk ? chunk[peer % kChunkCount].get() : nullptr;
  }
  // Returns the endpoint to the process that has this number now; makes and opens it if need be.
  // nullptr: there is no memory for it. Allocates, once for each number. Requires: it is a peer's.
  ShmEndpoint* try_make(uint32_t peer) noexcept;
  // Returns the endpoint without opening it: only allocates its memory if need be.
  ShmEndpoint* try_add(uint32_t peer) noexcept;

  template <typename Body>
  void for_each(Body&& body) const noexcept {
    for (const auto& chunk : std::span(chunks_.get(), chunk_count_)) {
      for (uint32_t i = 0; chunk && i < kChunkCount; ++i) {
        if (chunk[i]) body(*chunk[i]);
      }
    }
  }

  // Whether take_copy_error() has an error.
  bool has_news() const noexcept { return copy_news_ == CopyNews::kFailed; }
  // The error of the first peer whose memory could not be opened; nullptr: none, or it was taken
  // already.
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
