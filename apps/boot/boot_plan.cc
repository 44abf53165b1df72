#include "apps/boot/boot_plan.h"

#include <algorithm>

#include "alloc/interception_decision.h"
#include "pinned_pool/boot_segment.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kFixedBytes = 8 * kMiB;
// For each byte of the file: its nodes in the parser, the text of keys and values, and the
// settings.
constexpr uint64_t kEachTextByte = 48;
// For each planned object: its plan, copies of it, and the objects made before there is a heap.
constexpr uint64_t kEachCounterSet = 1536;
constexpr uint64_t kEachFile = 3 * kKiB;
constexpr uint64_t kEachDatagramSocket = 2 * kKiB;
constexpr uint64_t kEachCarve = 512;

}  // namespace

uint64_t plan_boot_bytes(const Configuration& configuration,
                         const std::vector<ServiceNeeds>& services) {
  const uint64_t set_bytes = boot_segment_bytes();
  if (interception_decision().backing != HeapBacking::kPool) return set_bytes;
  uint64_t bytes = kFixedBytes + configuration.text_bytes * kEachTextByte;
  for (const ServiceNeeds& service : services) {
    bytes += service.counters.size() * kEachCounterSet + service.files.size() * kEachFile +
             service.datagrams.size() * kEachDatagramSocket;
    for (const SegmentRequest& segment : service.segments) {
      bytes += segment.carves.size() * kEachCarve;
    }
  }
  const uint64_t unit = std::max(kBootBytesGranularity, page_bytes(boot_page()));
  return std::max(set_bytes, align_up(bytes, unit));
}

}  // namespace bedplate
