#include "transport/verbs/channel/verbs_shape.h"

#include <bit>
#include <cinttypes>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "transport/verbs/channel/datagram_queue_datapath.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {
namespace {

// Bounds of a shape (check_shape). The shortest message holds a loan with its header.
constexpr uint64_t kPeerCountMax = 1024;
constexpr uint64_t kWindowMax = 16384;
constexpr uint64_t kMessageBytesMin = 256;
constexpr uint64_t kVerbsMessageBytesMax = kMiB;
constexpr uint64_t kVerbsOperationCountMax = 16384;
constexpr uint64_t kBounceBytesMax = 64 * kGiB;
static_assert(kMessageBytesMin >=
              sizeof(VerbsMessageHeader) + sizeof(VerbsLoanBody) + kVerbsLoanHeaderBytesMax);

// A peer's requests beside messages, operations and acknowledgements: the marker, the read that
// restarts a stopped device, and one to spare.
constexpr uint32_t kOtherRequestCount = 3;

}  // namespace

uint32_t VerbsShape::request_count() const noexcept {
  return std::bit_ceil(uint32_t{window} + operation_count_max + kAcknowledgementsMax +
                       kOtherRequestCount);
}

uint32_t VerbsShape::receive_count() const noexcept {
  return peer_count_max * (window + kAcknowledgementsMax) + kCompletionBatch;
}

uint32_t VerbsShape::completion_count() const noexcept {
  return receive_count() + peer_count_max * request_count() + 2 * datagram_count;
}

uint64_t VerbsShape::peer_memory_bytes() const noexcept {
  return align_up(uint64_t{window} * message_bytes +
                      kAcknowledgementsMax * sizeof(VerbsMessageHeader) +
                      uint64_t{request_count()} * sizeof(uint64_t),
                  kCacheLineBytes);
}

uint64_t VerbsShape::bounce_page_bytes() const noexcept {
  return align_up(bounce_bytes, kPageBytes);
}

uint64_t VerbsShape::private_bytes() const noexcept {
  return align_up(uint64_t{receive_count()} * message_bytes + peer_count_max * peer_memory_bytes() +
                      DatagramQueue::memory_bytes(datagram_count),
                  kPageBytes) +
         bounce_page_bytes();
}

Result<void> check_shape(const VerbsShape& shape) noexcept {
  // Without datagrams there is nothing to check: the least number passes.
  const uint32_t datagram_count =
      shape.datagram_count == 0 ? DatagramQueue::kCountMin : shape.datagram_count;
  const struct {
    const char* what;
    uint64_t value, min, max;
    bool is_good;
    const char* kind;  // of the numbers that are possible
    const char* example;
  } checks[] = {
      {"peers", shape.peer_count_max, 1, kPeerCountMax, true, "numbers", "8"},
      {"messages in a window", shape.window, 2, kWindowMax, std::has_single_bit(shape.window),
       "powers of two", "64"},
      {"bytes of a message", shape.message_bytes, kMessageBytesMin, kVerbsMessageBytesMax,
       shape.message_bytes % kCacheLineBytes == 0, "multiples of 64", "4096"},
      {"operations", shape.operation_count_max, 1, kVerbsOperationCountMax, true, "numbers", "64"},
      {"bytes of the bounce buffer", shape.bounce_bytes, 0, kBounceBytesMax, true, "sizes",
       "1 MiB"},
      {"datagrams", datagram_count, DatagramQueue::kCountMin, DatagramQueue::kCountMax,
       std::has_single_bit(datagram_count), "0, and powers of two", "64"},
  };
  for (const auto& one : checks) {
    if (one.value >= one.min && one.value <= one.max && one.is_good) continue;
    return error_while("planning the queues of verbs")
        .set_answer("%" PRIu64 " %s: %s from %" PRIu64 " to %" PRIu64 " are possible", one.value,
                    one.what, one.kind, one.min, one.max)
        .set_cure("choose one of these, such as %s", one.example);
  }
  return {};
}

uint64_t verbs_memory_bytes(const VerbsShape& shape) noexcept {
  return shape.private_bytes() + verbs_shared_bytes(shape);
}

// The page of the flush word, and the bounce buffer of loans.
uint64_t verbs_shared_bytes(const VerbsShape& shape) noexcept {
  return VerbsShape::kPageBytes + shape.bounce_page_bytes();
}

}  // namespace bedplate
