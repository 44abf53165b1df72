#include "apps/blockd/volume_datapath.h"

#include <algorithm>
#include <cstring>

#include "apps/blockd/volume.h"
#include "platform/nontemporal_copy.h"
#include "platform/units.h"
#include "platform/usdt.h"

namespace bedplate {
namespace {

constexpr uint64_t kZeroSliceBytes = kMiB;
constexpr uint32_t kRequestsPerPoll = 64;
static_assert(kRequestsPerPoll >= VolumeService::kLanesMax, "each lane has its turn in each poll");

// Always holds: the connection's shard has checked the client's range (nbd::check).
bool is_inside(const BlockRequest& request) noexcept {
  const uint64_t bytes = request.volume->store->bytes();
  return request.wire.offset <= bytes && request.wire.length <= bytes - request.wire.offset;
}

}  // namespace

void VolumeService::create(std::span<VolumeLanes> lanes, EventLoop& loop) noexcept {
  BP_ASSERT(!lanes.empty() && lanes.size() <= kLanesMax);
  lanes_ = lanes;
  loop_ = &loop;
  batch_max_ = kRequestsPerPoll / static_cast<uint32_t>(lanes.size());
}

bool VolumeService::is_valid() const noexcept {
  const auto is_in_progress = [](const BlockRequest& one) {
    return is_inside(one) && one.done_bytes < std::max<uint64_t>(one.wire.length, 1);
  };
  return long_.count(SIZE_MAX, is_in_progress).has_value();
}

// Requests answered in the round they arrived in are not timed: the clock is read once a round.
void VolumeService::reply(BlockRequest& request) noexcept {
  BP_DCHECK(!is_nontemporal_fence_due);
  request.trace.pass(kDone, loop_->now_ns());
  BP_USDT(request_done, request.wire.cookie, request.error);
  BP_DCHECK(request.home < lanes_.size());
  lanes_[request.home].replies.push(request);
}

void VolumeService::handle_write(BlockRequest& request) noexcept {
  std::byte* const destination = request.volume->store->memory() + request.wire.offset;
  switch (request.step) {
    case RequestStep::kSubmit:
      request.data = destination;
      request.volume->counters->grants.add(1);
      break;
    case RequestStep::kStore:
      request.volume->counters->commits.add(1);  // store_payloads() has copied its payload
      break;
    case RequestStep::kCommit:
      BP_ASSERT(request.data == destination);
      request.volume->counters->commits.add(1);
      break;
    case RequestStep::kAbort: request.volume->counters->aborts.add(1); break;
    case RequestStep::kStored:
    case RequestStep::kRelease: BP_ASSERT(!"memory has no buffers");
  }
  reply(request);
}

// Copies the payloads that came with their headers, for all these requests before any is answered.
// Copies of whole lines bypass the caches: a volume is larger than the caches, and its next small
// write goes elsewhere.
void VolumeService::store_payloads(std::span<BlockRequest* const> requests) noexcept {
  bool is_fence_due = false;
  for (const BlockRequest* request : requests) {
    const Volume& volume = *request->volume;
    if (request->step != RequestStep::kStore || volume.queue != nullptr) continue;
    BP_ASSERT(is_inside(*request) && request->data != nullptr);
    std::byte* const destination = volume.store->memory() + request->wire.offset;
    if (is_whole_lines(destination, request->wire.length)) {
      copy_nontemporal(destination, request->data, request->wire.length);
      is_fence_due = true;
    } else {
      std::memcpy(destination, request->data, request->wire.length);
    }
  }
  if (is_fence_due) fence_nontemporal();
}

void VolumeService::handle(std::span<BlockRequest* const> requests) noexcept {
  store_payloads(requests);
  for (BlockRequest* request : requests) carry_out(*request);
}

// Requires: a payload that came with its header has been copied.
void VolumeService::carry_out(BlockRequest& request) noexcept {
  BP_ASSERT(request.volume != nullptr && is_inside(request));
  if (StoreQueue* queue = request.volume->queue.get(); queue != nullptr) {
    return queue->take(request);
  }
  BP_USDT(request_begun, request.wire.cookie, request.step);
  request.trace.pass(kBegun, loop_->now_ns());
  switch (request.wire.command) {
    case nbd::Command::kRead:
      request.data = request.volume->store->memory() + request.wire.offset;
      reply(request);
      break;
    case nbd::Command::kWrite: handle_write(request); break;
    case nbd::Command::kTrim:  // the pool frees no memory: a trimmed range reads as zeros
    case nbd::Command::kWriteZeroes:
      request.done_bytes = 0;
      long_.push(request);
      break;
    default:  // FLUSH: all committed writes are in memory; BLOCK_STATUS: the whole range is data
      reply(request);
      break;
  }
}

// Returns true if the volume is held and the request is new: the request is then in the volume's
// list.
bool VolumeService::waits(BlockRequest& request) noexcept {
  VolumeHold& hold = request.volume->hold;
  const bool is_new = request.step == RequestStep::kSubmit || request.step == RequestStep::kStore;
  if (!hold.is_on.load(std::memory_order_relaxed) || !is_new) return false;
  hold.requests.push(request);
  return true;
}

uint32_t VolumeService::hold(Volume& volume, bool is_on) noexcept {
  VolumeHold& hold = volume.hold;
  hold.is_on.store(is_on, std::memory_order_relaxed);
  if (is_on) return 0;
  uint32_t count = 0;
  for (; !hold.requests.is_empty(); ++count) {
    BlockRequest* const request = &hold.requests.pop();
    handle({&request, 1});
  }
  return count;
}

// Zeroes one slice of the first long request, which then goes to the end of the list.
uint32_t VolumeService::zero_some() noexcept {
  if (long_.is_empty()) return 0;
  BlockRequest* const request = &long_.pop();
  BP_DCHECK(is_inside(*request) && request->done_bytes <= request->wire.length);
  const uint64_t slice =
      std::min<uint64_t>(kZeroSliceBytes, request->wire.length - request->done_bytes);
  std::memset(request->volume->store->memory() + request->wire.offset + request->done_bytes, 0,
              slice);
  request->done_bytes += slice;
  if (request->done_bytes == request->wire.length) {
    reply(*request);
    return 1;
  }
  long_.push(*request);
  return 1;
}

uint32_t VolumeService::take(BlockRequestFifo& requests, uint32_t budget) noexcept {
  BlockRequest* batch[kRequestsPerPoll];
  const size_t count = requests.pop_batch({batch, std::min(budget, batch_max_)});
  if (count > 0) loop_->look_at_clock();  // once for all requests
  const auto waits_here = [this](BlockRequest* each) { return waits(*each); };
  handle({batch, std::remove_if(batch, batch + count, waits_here)});
  return static_cast<uint32_t>(count);
}

// Each lane has its share of the budget, so no shard waits for another shard's requests.
uint32_t VolumeService::poll(uint32_t budget) noexcept {
  BP_KEEPS_VALID(*this);
  uint32_t count = 0;
  for (VolumeLanes& each : lanes_) count += take(*each.requests, budget);
  count += zero_some();
  // Also for operations that stores have completed since the last poll.
  for (VolumeLanes& each : lanes_) each.replies.ring();
  return count;
}

}  // namespace bedplate
