#include "apps/blockd/stores/store_queue_datapath.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "apps/blockd/volume.h"
#include "platform/usdt.h"

namespace bedplate {
namespace {

constexpr uint64_t kZerosBytes = 64 * kKiB;
constexpr uint64_t kStatusBytes = StoreQueue::kExtentCountMax * sizeof(FileExtent);
static_assert(sizeof(nbd::BlockDescriptor) <= sizeof(FileExtent), "they are translated in place");

constexpr uint32_t bit(StoreTask::Step step) noexcept { return 1U << static_cast<uint32_t>(step); }

bool has_flag(const BlockRequest& request, uint16_t flag) noexcept {
  return (request.wire.flags & flag) != 0;
}

// FUA has an effect only on a command that writes.
bool must_last(const BlockRequest& request) noexcept {
  if (request.wire.command == nbd::Command::kFlush) return true;
  return nbd::kCommandRules[static_cast<size_t>(request.wire.command)].writes &&
         has_flag(request, nbd::kCommandFlagFua);
}

nbd::ErrorCode code_of(int64_t result) noexcept {
  switch (-result) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return nbd::ErrorCode::kEnospc;
    case ENOMEM: return nbd::ErrorCode::kEnomem;
    case EOPNOTSUPP: return nbd::ErrorCode::kEnotsup;
    default: return nbd::ErrorCode::kEio;
  }
}

}  // namespace

// ---- lists and buffers --------------------------------------------------------------------------

uint64_t StoreQueue::bytes_for(const StoreQueueShape& shape) noexcept {
  const uint64_t tasks = uint64_t{shape.task_count} * (kBlockBytesMax + sizeof(StoreTask));
  return align_up(kZerosBytes + tasks, kCacheLineBytes);
}

void StoreQueue::create(VolumeStore& store, const StoreQueueShape& shape,
                        std::span<std::byte> buffers, std::span<std::byte> memory,
                        std::span<VolumeLanes> lanes, const EventLoop& loop,
                        StoreCounters& counters) noexcept {
  BP_ASSERT(buffers.size() == shape.buffer_bytes && buffers.size() >= kBufferBytesMin);
  BP_ASSERT(memory.size() == bytes_for(shape) && store.memory() == nullptr);
  BP_ASSERT(!lanes.empty());
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kBlockBytesMax == 0);
  BP_ASSERT(store.block_bytes() >= kBlockBytesMin && store.block_bytes() <= kBlockBytesMax);
  BP_ASSERT(std::has_single_bit(store.block_bytes()) && tasks_.empty());
  store_ = &store;
  lanes_ = lanes.data();
  loop_ = &loop;
  counters_ = &counters;
  zeros_ = memory.first(kZerosBytes);
  std::byte* scratch = memory.data() + kZerosBytes;
  std::byte* tasks = scratch + uint64_t{shape.task_count} * kBlockBytesMax;
  tasks_ = {reinterpret_cast<StoreTask*>(tasks), shape.task_count};
  for (StoreTask& task : tasks_) {
    new (&task) StoreTask;
    task.queue = this;
    task.scratch = scratch;
    free_.push(task);
    scratch += kBlockBytesMax;
  }
  free_count_ = shape.task_count;
  arena_.create(buffers);
  counters.operations_max.set(shape.task_count);
  counters.buffer_max_bytes.set(arena_.bytes());
  BP_DCHECK_SLOW(is_valid());
}

bool StoreQueue::is_valid() const noexcept {
  const auto is_free = [](const StoreTask& task) { return task.request == nullptr; };
  const auto free_count = std::count_if(tasks_.begin(), tasks_.end(), is_free);
  if (free_count != free_count_ || !free_.has_just(free_count_, is_free)) return false;
  if (!committed_.is_empty() && free_count != 0) return false;
  const auto is_any = [](const BlockRequest&) { return true; };
  const auto committed_count = committed_.count(waiting_count_, is_any);
  const auto new_count = new_.count(waiting_count_, is_any);
  return committed_count && new_count && *committed_count + *new_count == waiting_count_ &&
         order_.is_valid() && arena_.is_valid();
}

BlockRequest& StoreQueue::end_wait(List& list) noexcept {
  BP_DCHECK(waiting_count_ > 0);
  --waiting_count_;
  return list.pop();
}

StoreQueue::Edges StoreQueue::edges_of(const BlockRequest& request) const noexcept {
  const uint64_t mask = store_->block_bytes() - 1;
  const uint64_t begin = request.wire.offset;
  const uint64_t end = begin + request.wire.length;
  Edges edges;
  edges.first = begin & ~mask;
  edges.last = (end + mask) & ~mask;
  edges.head_bytes = begin - edges.first;
  edges.tail_bytes = edges.last - end;
  edges.whole_begin = (begin + mask) & ~mask;
  edges.whole_end = end & ~mask;
  return edges;
}

uint64_t StoreQueue::buffer_bytes_of(const BlockRequest& request) const noexcept {
  if (request.wire.command == nbd::Command::kBlockStatus) return kStatusBytes;
  const Edges edges = edges_of(request);
  return edges.last - edges.first;
}

bool StoreQueue::needs_buffer(const BlockRequest& request) const noexcept {
  const nbd::Command command = request.wire.command;
  return command == nbd::Command::kRead || command == nbd::Command::kWrite ||
         command == nbd::Command::kBlockStatus;
}

// Takes a buffer. Returns the address of the request's own bytes in it; nullptr: no buffer is free.
std::byte* StoreQueue::try_take_buffer(const BlockRequest& request) noexcept {
  std::byte* buffer = arena_.try_take(buffer_bytes_of(request));
  if (buffer == nullptr || request.wire.command == nbd::Command::kBlockStatus) return buffer;
  return buffer + edges_of(request).head_bytes;
}

void StoreQueue::give_buffer(BlockRequest& request) noexcept {
  BP_ASSERT(request.has_buffer);
  BP_DCHECK(request.data != nullptr && needs_buffer(request));
  const bool is_status = request.wire.command == nbd::Command::kBlockStatus;
  arena_.give(request.data - (is_status ? 0 : edges_of(request).head_bytes),
              buffer_bytes_of(request));
  request.data = nullptr;
  request.has_buffer = false;
}

// ---- from the lane to a task --------------------------------------------------------------------

void StoreQueue::take(BlockRequest& request) noexcept {
  BP_KEEPS_VALID(*this);
  switch (request.step) {
    case RequestStep::kAbort: request.volume->counters->aborts.add(1); [[fallthrough]];
    case RequestStep::kRelease:
      give_buffer(request);
      reply(request);
      break;
    case RequestStep::kCommit:
      BP_ASSERT(request.has_buffer);
      committed_.push(request);
      ++waiting_count_;
      break;
    default:
      BP_DCHECK(request.step == RequestStep::kSubmit || request.step == RequestStep::kStore);
      BP_DCHECK(!request.has_buffer);
      new_.push(request);
      ++waiting_count_;
      break;
  }
  pump();
}

// Writes that have their buffers go first: they free buffers.
void StoreQueue::pump() noexcept {
  while (!committed_.is_empty() && !free_.is_empty()) {
    begin_task(end_wait(committed_));
  }
  while (!new_.is_empty() && try_begin(*new_.first())) {
  }
  set_levels();
}

void StoreQueue::set_levels() noexcept {
  BP_DCHECK(free_count_ <= tasks_.size() && arena_.free_bytes() <= arena_.bytes());
  counters_->requests_waiting.set(waiting_count_);
  const uint64_t operations = tasks_.size() - free_count_;
  const uint64_t buffer_bytes = arena_.bytes() - arena_.free_bytes();
  counters_->operations.set(operations);
  counters_->operations_peak.raise(operations);
  counters_->buffer_bytes.set(buffer_bytes);
  counters_->buffer_peak_bytes.raise(buffer_bytes);
}

// Begins, grants or answers the first of the new requests. Returns false if it must keep waiting.
bool StoreQueue::try_begin(BlockRequest& request) noexcept {
  BP_DCHECK(&request == new_.first());
  if (request.wire.command == nbd::Command::kWrite) return try_grant(request);
  if (request.wire.command == nbd::Command::kBlockStatus && !store_->has_extents()) {
    end_wait(new_);
    request.data = nullptr;
    answer_at_once(request);
    return true;
  }
  if (free_.is_empty()) return false;
  if (needs_buffer(request)) {
    std::byte* data = try_take_buffer(request);
    if (data == nullptr) return false;
    request.data = data;
    request.has_buffer = true;
  }
  begin_task(end_wait(new_));
  return true;
}

// Gives a write its destination, and copies a payload that came with its header into it.
bool StoreQueue::try_grant(BlockRequest& request) noexcept {
  std::byte* data = try_take_buffer(request);
  if (data == nullptr) return false;
  BP_DCHECK(!request.has_buffer);
  end_wait(new_);
  if (request.step == RequestStep::kStore) {
    std::memcpy(data, request.data, request.wire.length);
    request.step = RequestStep::kStored;
  } else {
    request.volume->counters->grants.add(1);
  }
  request.data = data;
  request.has_buffer = true;
  answer_at_once(request);
  return true;
}

// Answers a request that needs no operation of the store.
void StoreQueue::answer_at_once(BlockRequest& request) noexcept {
  BP_USDT(request_begun, request.wire.cookie, request.step);
  request.trace.pass(kBegun, loop_->now_ns());
  BP_USDT(request_done, request.wire.cookie, request.error);
  request.trace.pass(kDone, loop_->now_ns());
  reply(request);
}

uint32_t StoreQueue::steps_of(const BlockRequest& request) const noexcept {
  const Edges edges = edges_of(request);
  const bool has_head = edges.head_bytes > 0;
  const bool has_tail = edges.tail_bytes > 0 && !edges.is_one_block();
  const uint32_t sync = has_flag(request, nbd::kCommandFlagFua) ? bit(Step::kSync) : 0;
  const uint32_t whole = edges.whole_begin < edges.whole_end ? bit(Step::kZero) : 0;
  switch (request.wire.command) {
    case nbd::Command::kRead: return bit(Step::kData);
    case nbd::Command::kWrite:
      return (has_head ? bit(Step::kReadHead) : 0) | (has_tail ? bit(Step::kReadTail) : 0) |
             bit(Step::kData);
    case nbd::Command::kTrim: return whole | sync;
    case nbd::Command::kWriteZeroes:
      return whole | (has_head ? bit(Step::kReadHead) | bit(Step::kWriteHead) : 0) |
             (has_tail ? bit(Step::kReadTail) | bit(Step::kWriteTail) : 0) | sync;
    case nbd::Command::kBlockStatus: return bit(Step::kExtents);
    default: return bit(Step::kSync);
  }
}

void StoreQueue::begin_task(BlockRequest& request) noexcept {
  BP_DCHECK(!free_.is_empty() && free_.first()->request == nullptr);
  BP_DCHECK(request.has_buffer == needs_buffer(request));
  StoreTask& task = free_.pop();
  --free_count_;
  task.request = &request;
  BP_USDT(request_begun, request.wire.cookie, request.step);
  request.trace.pass(kBegun, loop_->now_ns());
  task.steps = steps_of(request);
  task.zeroed_bytes = 0;
  task.has_failed_sync = false;
  task.operation = {};
  task.is_ordered = false;
  if (has_failed_sync_ && must_last(request)) return end_task(task, nbd::ErrorCode::kEio);
  constexpr uint16_t kFastInPlace = nbd::kCommandFlagFastZero | nbd::kCommandFlagNoHole;
  if (request.wire.command == nbd::Command::kWriteZeroes && !store_->zeroes_fast() &&
      (request.wire.flags & kFastInPlace) == kFastInPlace) {
    return end_task(task, nbd::ErrorCode::kEnotsup);
  }
  if (!nbd::kCommandRules[static_cast<size_t>(request.wire.command)].writes) return go_on(task);
  const Edges edges = edges_of(request);
  task.is_ordered = true;
  task.order.begin = edges.first;
  task.order.end = edges.last;
  task.order.is_exclusive = (task.steps & (bit(Step::kReadHead) | bit(Step::kReadTail))) != 0;
  if (order_.enter(task.order)) go_on(task);
}

// ---- the steps of a task ------------------------------------------------------------------------

void StoreQueue::go_on(StoreTask& task) noexcept {
  BP_DCHECK(task.request != nullptr && task.is_ordered == task.order.has_begun);
  if (task.steps == 0) return end_task(task, nbd::ErrorCode::kNone);
  task.step = static_cast<Step>(std::countr_zero(task.steps));
  task.steps &= task.steps - 1;
  begin_step(task);
}

void StoreQueue::begin_step(StoreTask& task) noexcept {
  const BlockRequest& request = *task.request;
  const Edges edges = edges_of(request);
  StoreOperation& operation = task.operation;
  operation.completed = &StoreQueue::completed;
  operation.context = &task;
  operation.is_durable = false;
  operation.memory = task.scratch;
  operation.bytes = store_->block_bytes();
  switch (task.step) {
    case Step::kZero: return begin_zero(task);
    case Step::kReadHead:
    case Step::kWriteHead: operation.offset = edges.first; break;
    case Step::kReadTail:
    case Step::kWriteTail: operation.offset = edges.last - store_->block_bytes(); break;
    case Step::kData:
      operation.offset = edges.first;
      operation.bytes = edges.last - edges.first;
      operation.memory = request.data - edges.head_bytes;
      operation.is_durable = must_last(request) && !task.has_failed_sync;
      break;
    case Step::kExtents:
      operation.offset = request.wire.offset;
      operation.bytes = request.wire.length;
      operation.memory = request.data;
      operation.extent_count_max = has_flag(request, nbd::kCommandFlagReqOne) ? 1 : kExtentCountMax;
      break;
    default: break;
  }
  const bool is_write = task.step == Step::kWriteHead || task.step == Step::kWriteTail ||
                        (task.step == Step::kData && request.wire.command != nbd::Command::kRead);
  operation.action = is_write ? StoreAction::kWrite : StoreAction::kRead;
  if (task.step == Step::kExtents) operation.action = StoreAction::kExtents;
  if (task.step == Step::kSync) operation.action = StoreAction::kFlush;
  BP_DCHECK(task.step >= Step::kExtents || operation.offset % store_->block_bytes() == 0);
  BP_DCHECK(task.step >= Step::kExtents || operation.bytes % store_->block_bytes() == 0);
  store_->begin(operation);
}

// Zeroes with the store's own operation or, if the store has refused that, by writing zeros
// (try_otherwise).
void StoreQueue::begin_zero(StoreTask& task) noexcept {
  const BlockRequest& request = *task.request;
  const Edges edges = edges_of(request);
  StoreOperation& operation = task.operation;
  operation.offset = edges.whole_begin + task.zeroed_bytes;
  operation.bytes = edges.whole_end - operation.offset;
  if (operation.action == StoreAction::kWrite) {
    operation.memory = zeros_.data();
    operation.bytes = std::min<uint64_t>(operation.bytes, zeros_.size());
  } else if (request.wire.command == nbd::Command::kTrim) {
    operation.action = StoreAction::kDiscard;
  } else {
    operation.action = StoreAction::kWriteZeroes;
    operation.keeps_room |= has_flag(request, nbd::kCommandFlagNoHole);
  }
  BP_DCHECK(operation.offset < edges.whole_end && operation.bytes > 0);
  store_->begin(operation);
}

void StoreQueue::completed(void* context, int64_t result) noexcept {
  auto& task = *static_cast<StoreTask*>(context);
  BP_ASSERT(task.request != nullptr);  // a store completes each operation once
  StoreQueue& queue = *task.queue;
  BP_KEEPS_VALID(queue);
  queue.counters_->operations_ended.add(1);
  queue.step_ended(task, result);
  queue.pump();
}

void StoreQueue::step_ended(StoreTask& task, int64_t result) noexcept {
  BP_DCHECK(task.step != Step::kDone && task.operation.context == &task);
  const StoreOperation& operation = task.operation;
  BP_DCHECK(operation.action == StoreAction::kExtents || result < 0 ||
            static_cast<uint64_t>(result) <= operation.bytes);
  // A short read: the file was truncated.
  const bool is_short = operation.action == StoreAction::kRead && result >= 0 &&
                        static_cast<uint64_t>(result) < operation.bytes;
  if (is_short) result = -EIO;
  if (result < 0) {
    if (try_otherwise(task, result)) return begin_step(task);
    if (task.step == Step::kZero && operation.action == StoreAction::kDiscard &&
        result == -EOPNOTSUPP) {
      return go_on(task);  // a discard is only a hint
    }
    if (task.step == Step::kSync) has_failed_sync_ = true;
    if (result != -EOPNOTSUPP) counters_->errors.add(1);
    counters_->has_failed_flush.set(has_failed_sync_ ? 1 : 0);
    return end_task(task, code_of(result));
  }
  if (task.has_failed_sync) {  // the plain write worked, so durability had failed
    has_failed_sync_ = true;
    counters_->errors.add(1);
    counters_->has_failed_flush.set(1);
    return end_task(task, nbd::ErrorCode::kEio);
  }
  switch (task.step) {
    case Step::kReadHead:
    case Step::kReadTail: merge_edge(task); break;
    case Step::kExtents: end_extents(task, result); break;
    case Step::kZero:
      if (operation.action != StoreAction::kWrite) break;
      task.zeroed_bytes += operation.bytes;
      if (edges_of(*task.request).whole_begin + task.zeroed_bytes <
          edges_of(*task.request).whole_end) {
        return begin_step(task);
      }
      break;
    default: break;
  }
  go_on(task);
}

// Returns true if the step is retried in another way.
bool StoreQueue::try_otherwise(StoreTask& task, int64_t result) noexcept {
  StoreOperation& operation = task.operation;
  if (task.step == Step::kData && operation.is_durable) {
    task.has_failed_sync = true;
    return true;
  }
  if (operation.action != StoreAction::kWriteZeroes || result != -EOPNOTSUPP) return false;
  const bool is_fast = has_flag(*task.request, nbd::kCommandFlagFastZero);
  if (!operation.keeps_room && (!is_fast || store_->zeroes_fast())) {
    operation.keeps_room = true;
    return true;
  }
  if (is_fast) return false;
  operation.action = StoreAction::kWrite;
  return true;
}

// Merges the request into the block that was read at an edge. For a payload, the block's other
// bytes are copied around it; for zeroes, the request's part of the block is zeroed.
void StoreQueue::merge_edge(StoreTask& task) noexcept {
  const BlockRequest& request = *task.request;
  const Edges edges = edges_of(request);
  const uint64_t block = store_->block_bytes();
  const bool is_head = task.step == Step::kReadHead;
  const uint64_t before = is_head ? edges.head_bytes : 0;
  const uint64_t behind = is_head && !edges.is_one_block() ? 0 : edges.tail_bytes;
  BP_DCHECK(before + behind < block && "some of it is the request's");
  if (request.wire.command == nbd::Command::kWriteZeroes) {
    std::memset(task.scratch + before, 0, block - before - behind);
    return;
  }
  std::byte* const buffer = request.data - edges.head_bytes;
  std::byte* const target = is_head ? buffer : buffer + (edges.last - edges.first - block);
  std::memcpy(target, task.scratch, before);
  std::memcpy(target + block - behind, task.scratch + block - behind, behind);
}

// Turns the store's extents into the client's descriptors, in place.
void StoreQueue::end_extents(StoreTask& task, int64_t count) noexcept {
  BlockRequest& request = *task.request;
  BP_ASSERT(count <= task.operation.extent_count_max);
  if (count == 0) return give_buffer(request);  // the file was truncated: treats it as all data
  const auto* extents = reinterpret_cast<const FileExtent*>(request.data);
  for (int64_t i = 0; i < count; ++i) {
    const FileExtent extent = extents[i];
    BP_DCHECK(extent.bytes <= UINT32_MAX && "a descriptor has 32 bits for it");
    const uint32_t state = extent.has_data ? 0 : nbd::kStateHole | nbd::kStateZero;
    const nbd::BlockDescriptor descriptor = {static_cast<uint32_t>(extent.bytes), state};
    std::memcpy(request.data + static_cast<size_t>(i) * sizeof descriptor, &descriptor,
                sizeof descriptor);
  }
  request.done_bytes = static_cast<uint64_t>(count) * sizeof(nbd::BlockDescriptor);
}

void StoreQueue::end_task(StoreTask& task, nbd::ErrorCode error) noexcept {
  BP_DCHECK(task.request != nullptr && free_count_ < tasks_.size());
  BlockRequest& request = *task.request;
  request.error = error;
  BP_USDT(request_done, request.wire.cookie, error);
  request.trace.pass(kDone, loop_->now_ns());
  const bool is_write = request.wire.command == nbd::Command::kWrite;
  if (is_write) request.volume->counters->commits.add(1);
  if (request.has_buffer && (is_write || error != nbd::ErrorCode::kNone)) give_buffer(request);
  if (task.is_ordered) {
    order_.leave(task.order);
    task.is_ordered = false;
  }
  task.request = nullptr;
  free_.push(task);
  ++free_count_;
  reply(request);
  while (OrderedWrite* next = order_.try_next()) go_on(*reinterpret_cast<StoreTask*>(next));
}

}  // namespace bedplate
