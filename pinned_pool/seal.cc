// PinnedPool::seal.
#include "pinned_pool/no_way_back.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/shared_segments.h"
#include "platform/log.h"

namespace bedplate {
namespace {

// Gives the segment's memfd its last seals. Returns true if it takes no more writers from here on.
bool take_file_seals(const Segment& segment) noexcept {
  if (!segment.is_own) return false;
  if (segment.has_its_memfd()) {
    const bool is_shut = segment.takes_write_seal && seal_against_writers(segment.memfd) == 0;
    seal_against_seals(segment.memfd);
    return is_shut;
  }
  // The number may refer to another file by now: that is not sealed, and a warning is logged.
  BP_LOG_WARNING("sealing %s against writers: its descriptor %d was closed by the program; close "
                 "only what the program has opened itself (no closefrom)",
                 segment.owner.text, segment.memfd);
  return false;
}

}  // namespace

void PinnedPool::seal() noexcept {
  const ThreadOwner::Hold hold(maker_);
  BP_KEEPS_VALID(*this);
  BP_ASSERT(!is_sealed());
  require_shared_segments(*this);
  uint32_t stoppers = kSizeSealStops | kWriteSealStops | kMappingSealStops;
  if (segment_count() > 0 && segments_[0].is_own) end_growth();
  for (uint32_t i = 0; i < segment_count(); ++i) {
    Segment& segment = segments_[i];
    segment.has_write_seal = take_file_seals(segment);
    if (!segment.has_write_seal) stoppers &= ~uint32_t{kWriteSealStops};
    if (seal_mapping(segment.address, segment.bytes) != 0) {
      stoppers &= ~uint32_t{kMappingSealStops};
    }
  }
  if (memory_calls_are_intercepted()) stoppers |= kLibcCallStops;
  add_stoppers(stoppers);
  is_sealed_.store(true, std::memory_order_release);
}

}  // namespace bedplate
