// The numbers of a verbs provider, and those that follow from them: the lengths of its queues, and
// the layout of its memory.
//
// The memory, from its beginning: the receives; each peer's slots, acknowledgements and cells; the
// datagrams; on a page, the bounce buffer of our own puts and gets. Then the part that peers may
// read: a page with the word that flush reads, and the bounce buffer of loans.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

// Completions are taken, and receives posted again, so many at a time.
inline constexpr uint32_t kCompletionBatch = 16;
// Acknowledgements that may be on the way: each tells of half a window, and there is one window.
inline constexpr uint32_t kAcknowledgementsMax = 2;

// The numbers that the provider's memory is computed from.
struct VerbsShape {
  uint32_t peer_count_max = 8;
  uint16_t window = 64;               // unconsumed messages, each way; a power of two
  uint32_t message_bytes = 4096;      // with the header of 32; a multiple of 64
  uint32_t operation_count_max = 64;  // puts, gets, atomics under way to one peer
  uint64_t bounce_bytes = kMiB;       // of each of the two bounce buffers
  uint32_t datagram_count = 0;  // under way, each way, with all peers; 0: none are sent or taken

  static constexpr uint64_t kPageBytes = 4096;

  // ---- The provider's. Requires: check_shape ----

  // The requests that the queue of a peer has room for: a power of two.
  uint32_t request_count() const noexcept;
  // The messages that all peers together may have on the way to us, and the receives that are being
  // posted again meanwhile.
  uint32_t receive_count() const noexcept;
  // The requests of all peers, the receives, and the sends and receives of datagrams.
  uint32_t completion_count() const noexcept;
  // One peer's memory: slots of messages, acknowledgements, cells (answers of atomics).
  uint64_t peer_memory_bytes() const noexcept;
  // The size of one bounce buffer, in whole pages.
  uint64_t bounce_page_bytes() const noexcept;
  // The size of the part that no peer reaches, which comes before the shared one.
  uint64_t private_bytes() const noexcept;
};

// Errors (kSystem): the first number that is out of its bounds, with these.
Result<void> check_shape(const VerbsShape& shape) noexcept;
// How much memory a provider of this shape needs, in whole pages. Requires: check_shape.
uint64_t verbs_memory_bytes(const VerbsShape& shape) noexcept;
// How much of it peers may read; it is registered once more.
uint64_t verbs_shared_bytes(const VerbsShape& shape) noexcept;

}  // namespace bedplate
