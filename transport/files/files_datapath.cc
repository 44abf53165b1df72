// The stages of an operation: begun; perhaps waiting for its turn; issued, as often as it takes;
// ended.
#include <cerrno>

#include "platform/assert.h"
#include "transport/files/files.h"

namespace bedplate {
namespace {

bool moves_bytes(const FileOperation& operation) noexcept {
  return operation.action == FileAction::kRead || operation.action == FileAction::kWrite;
}

// Whether the kernel should be asked for the rest after `moved` bytes. With O_DIRECT, a read that
// stopped within a block has reached the end of the file: asking for the rest would be an error.
bool goes_on(const FileOperation& operation, uint64_t moved) noexcept {
  if (operation.moved_bytes == operation.bytes) return false;
  return operation.action == FileAction::kWrite || moved % operation.file->alignment_bytes() == 0;
}

}  // namespace

void File::begin(FileOperation& operation) noexcept {
  BP_DREQUIRE_THREAD(files_.owner_.is_caller(), "File::begin");
  BP_REQUIRE(!operation.is_in_flight,
             "an operation on a file begins while it is in flight: File::begin");
  BP_REQUIRE(operation.completed != nullptr,
             "an operation on a file has no function for its end: FileOperation::completed");
  constexpr auto kEndMax = static_cast<uint64_t>(INT64_MAX);
  BP_REQUIRE(operation.offset <= kEndMax && operation.bytes <= kEndMax - operation.offset,
             "an operation on a file ends beyond 2^63: FileOperation::offset");
  BP_REQUIRE(operation.action != FileAction::kExtents || options_.tells_extents,
             "a file is asked for extents that is not planned for it: FilePlan::tells_extents");
  operation.file = this;
  files_.begin(operation);
}

bool Files::is_valid() const noexcept {
  uint32_t issued = 0;
  for (const File& file : files_) {
    const uint32_t most = file.options_.operation_count_max;
    if (file.in_flight_count_ > most) return false;
    if (!file.waiting_.is_empty() && file.in_flight_count_ < most && !is_closed_) return false;
    const auto waits = [&file](const FileOperation& one) {
      return one.is_in_flight && one.moved_bytes == 0 && one.file == &file;
    };
    if (!file.waiting_.count(SIZE_MAX, waits)) return false;
    issued += file.in_flight_count_;
  }
  return issued == issued_count_ && searched_count_ + polled_count_ <= issued_count_;
}

void Files::begin(FileOperation& operation) noexcept {
  if (is_closed_) return;
  BP_KEEPS_VALID(*this);
  BP_ASSERT(backend_ != nullptr);
  File& file = *operation.file;
  operation.is_in_flight = true;
  operation.is_polled = false;
  operation.asker = current_heap_owner();
  operation.moved_bytes = 0;
  if (file.in_flight_count_ < file.options_.operation_count_max) return issue(operation);
  file.waiting_.push(operation);
}

// A durable write may not be polled: for a drive that cannot do it in one request, the kernel adds
// a flush, and nobody would ask for the flush's outcome.
bool Files::may_be_polled(const FileOperation& operation) const noexcept {
  if (polled_ == nullptr || !moves_bytes(operation) || operation.is_durable) return false;
  const uint64_t moved = operation.moved_bytes;
  return operation.file->options_.polled.takes(static_cast<std::byte*>(operation.memory) + moved,
                                               operation.bytes - moved, operation.offset + moved);
}

void Files::hand_over(FileOperation& operation, bool is_polled) noexcept {
  operation.is_polled = is_polled;
  if (is_polled) ++polled_count_;
  backend_of(operation).issue(operation);
}

void Files::issue(FileOperation& operation) noexcept {
  ++operation.file->in_flight_count_;
  ++issued_count_;
  const bool is_polled = may_be_polled(operation);
  if (!is_polled && &backend_of(operation) == searcher_) ++searched_count_;
  hand_over(operation, is_polled);
}

void Files::handle(FileOperation& operation, int64_t result) noexcept {
  BP_DCHECK_SLOW(is_valid());
  BP_ASSERT(operation.is_in_flight && operation.file->in_flight_count_ > 0);
  const bool is_moving = moves_bytes(operation);
  if (operation.is_polled) --polled_count_;
  if (result > 0 && is_moving) {
    operation.moved_bytes += static_cast<uint64_t>(result);
    BP_ASSERT(operation.moved_bytes <= operation.bytes);
    if (goes_on(operation, static_cast<uint64_t>(result))) {
      return hand_over(operation, may_be_polled(operation));
    }
  }
  // If the polled ring refuses an operation, now or for good, the ordinary backend takes it.
  const bool is_not_polled = operation.is_polled && result == -EOPNOTSUPP;
  if (is_not_polled) {
    operation.file->options_.polled = {};
    operation.file->options_.counters->polling_ended.set(1);
  }
  if (is_not_polled || result == -EINTR || result == -EAGAIN) return hand_over(operation, false);
  if (result >= 0) {
    // No known kernel writes nothing without an error; if one did, this would ask it for ever.
    const bool is_stuck = operation.action == FileAction::kWrite && result == 0 &&
                          operation.moved_bytes < operation.bytes;
    if (is_moving) result = is_stuck ? -EIO : static_cast<int64_t>(operation.moved_bytes);
    if (!is_moving && operation.action != FileAction::kExtents) result = 0;
  }
  File& file = *operation.file;
  --file.in_flight_count_;
  --issued_count_;
  if (!operation.is_polled && &backend_of(operation) == searcher_) --searched_count_;
  // Issues the next one first: the callback may begin another, which must come after the waiting
  // ones.
  if (!file.waiting_.is_empty() && !is_closed_) issue(file.waiting_.pop());
  BP_DCHECK_SLOW(is_valid());
  finish(operation, result);
}

void Files::finish(FileOperation& operation, int64_t result) noexcept {
  BP_DCHECK(operation.is_in_flight && operation.moved_bytes <= operation.bytes);
  operation.is_in_flight = false;
  FileCounters& counters = *operation.file->options_.counters;
  counters.operations.add(1);
  // Neither tells of the file: it was closed, or it cannot do an action that not every file can.
  if (result < 0 && result != -ECANCELED && result != -EOPNOTSUPP) counters.errors.add(1);
  if (operation.is_polled) counters.polled.add(1);
  if (operation.action == FileAction::kRead) counters.read_bytes.add(operation.moved_bytes);
  if (operation.action == FileAction::kWrite) counters.written_bytes.add(operation.moved_bytes);
  follow_heap_owner(operation.asker);
  operation.completed(operation.context, result);
}

}  // namespace bedplate
