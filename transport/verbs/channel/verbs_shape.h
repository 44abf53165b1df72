// The sizes of a verbs provider, and the numbers derived from them: the lengths of its queues, and
// the layout of its memory.
//
// The memory has two parts. The first is private; it holds, in this order: the receives; each
// peer's slots, acknowledgements and cells; the datagrams; page aligned, the bounce buffer of our
// own puts and gets. Peers may read the second: a page with the word that a flush reads, and the
// bounce buffer of loans.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

// The most completions taken, and receives posted, at a time.
inline constexpr uint32_t kCompletionBatch = 16;
// The most acknowledgements under way to one peer: each gives back half a window.
inline constexpr uint32_t kAcknowledgementsMax = 2;

// The sizes that the provider's memory is computed from.
struct VerbsShape {
  uint32_t peer_count_max = 8;
  uint16_t window = 64;               // unconsumed messages, each way; a power of two from 2
  uint32_t message_bytes = 4096;      // with the header of 32; a multiple of 64, from 256
  uint32_t operation_count_max = 64;  // puts, gets, atomics under way to one peer
  uint64_t bounce_bytes = kMiB;       // of each of the two bounce buffers; 0: none
  // In flight each way, with all peers together: a power of two, at least 4. 0: no datagrams.
  uint32_t datagram_count = 0;

  static constexpr uint64_t kPageBytes = 4096;

  // ---- The provider's. Requires: check_shape ----

  // The depth of a peer's send queue: a power of two.
  uint32_t request_count() const noexcept;
  // The receives for all messages and acknowledgements that peers may have under way, and one batch
  // to repost.
  uint32_t receive_count() const noexcept;
  // Completions for the requests of all peers, the receives, and the sends and receives of
  // datagrams.
  uint32_t completion_count() const noexcept;
  // The size of one peer's memory: slots of messages, acknowledgements, cells (answers of atomics).
  uint64_t peer_memory_bytes() const noexcept;
  // The size of one bounce buffer, in whole pages.
  uint64_t bounce_page_bytes() const noexcept;
  // The size of the part that no peer reaches, which comes first.
  uint64_t private_bytes() const noexcept;
};

// Errors (kSystem), with the bounds: the first number that is out of its bounds, or is not a power
// of two or a multiple of 64 where it must be.
Result<void> check_shape(const VerbsShape& shape) noexcept;
// The size of the provider's memory for a shape, in whole pages. Requires: check_shape.
uint64_t verbs_memory_bytes(const VerbsShape& shape) noexcept;
// The size of the part that peers may read, which is registered once more. Requires: check_shape.
uint64_t verbs_shared_bytes(const VerbsShape& shape) noexcept;

}  // namespace bedplate
