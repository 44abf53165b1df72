#include "platform/recent_lines.h"

#include <algorithm>
#include <cstring>

#include <sched.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint64_t kBeingWritten = ~uint64_t{0};
constexpr uint32_t kLengthBits = 10;
static_assert(kRecentLineBytesMax < size_t{1} << kLengthBits);

struct Ring {
  LineSlot* slots = nullptr;
  uint64_t count = 0;
  std::atomic<uint32_t> users{0};  // 0 before its slots are taken away
};

constexpr uint64_t kFewCount = 32;
constinit LineSlot few_slots[kFewCount] = {};
constinit Ring few = {few_slots, kFewCount};
constinit Ring lent = {};
constinit std::atomic<Ring*> ring{&few};
constinit std::atomic<uint64_t> line_count{0};

// Keeps the ring from changing while this object lives. Sequentially consistent with
// keep_few_lines(): if that does not see this user, this user sees the new ring.
class RingUse {
 public:
  RingUse() noexcept {
    for (;;) {
      ring_ = ring.load(std::memory_order_seq_cst);
      ring_->users.fetch_add(1, std::memory_order_seq_cst);
      if (ring.load(std::memory_order_seq_cst) == ring_) return;
      ring_->users.fetch_sub(1, std::memory_order_release);
    }
  }
  RingUse(const RingUse&) = delete;
  RingUse& operator=(const RingUse&) = delete;
  ~RingUse() { ring_->users.fetch_sub(1, std::memory_order_release); }
  const Ring& operator*() const noexcept { return *ring_; }

 private:
  Ring* ring_;
};

uint64_t state_of(uint64_t number, size_t bytes) noexcept {
  return (number + 1) << kLengthBits | bytes;
}

// The number of bytes kept of a line: a line that is too long is truncated at a character boundary.
size_t kept_bytes(const char* line, size_t line_bytes) noexcept {
  if (line_bytes <= kRecentLineBytesMax) return line_bytes;
  size_t bytes = kRecentLineBytesMax - sizeof kCutMark;  // its NUL counts for the newline
  for (int i = 0; i < 3 && (static_cast<unsigned char>(line[bytes]) & 0xc0) == 0x80; ++i) --bytes;
  return bytes;
}

void write_line(const Ring& to, uint64_t number, const char* line, size_t line_bytes) noexcept {
  BP_DCHECK(line_bytes > 0 && line[line_bytes - 1] == '\n');
  LineSlot& slot = to.slots[number % to.count];
  // If two lines, a whole ring apart, meet in one slot, one is lost.
  if (slot.state.exchange(kBeingWritten, std::memory_order_relaxed) == kBeingWritten) return;
  std::atomic_thread_fence(std::memory_order_release);  // pairs with the fence of the reader
  char text[kRecentLineBytesMax];
  size_t bytes = kept_bytes(line, line_bytes);
  std::memcpy(text, line, bytes);
  if (bytes < line_bytes) {
    std::memcpy(text + bytes, kCutMark, sizeof kCutMark - 1);
    bytes += sizeof kCutMark - 1;
    text[bytes++] = '\n';
  }
  BP_ASSERT(bytes <= kRecentLineBytesMax);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, text + at, std::min(sizeof word, bytes - at));
    slot.words[at / sizeof word].store(word, std::memory_order_relaxed);
  }
  slot.state.store(state_of(number, bytes), std::memory_order_release);
}

size_t read_line(const Ring& from, uint64_t number,
                 std::span<char, kRecentLineBytesMax> to) noexcept {
  const LineSlot& slot = from.slots[number % from.count];
  const uint64_t state = slot.state.load(std::memory_order_acquire);
  const size_t bytes = state & ((uint64_t{1} << kLengthBits) - 1);
  if (state == kBeingWritten || state != state_of(number, bytes)) return 0;
  BP_DCHECK(bytes <= kRecentLineBytesMax);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = slot.words[at / sizeof(uint64_t)].load(std::memory_order_relaxed);
    std::memcpy(to.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the fence of the writer
  return slot.state.load(std::memory_order_relaxed) == state ? bytes : 0;
}

uint64_t first_of(const Ring& all, uint64_t next) noexcept {
  return next - std::min(next, all.count);
}

}  // namespace

void remember_line(const char* line, size_t line_bytes) noexcept {
  const RingUse use;
  write_line(*use, line_count.fetch_add(1, std::memory_order_relaxed), line, line_bytes);
}

uint64_t next_recent_line() noexcept { return line_count.load(std::memory_order_relaxed); }

uint64_t first_recent_line() noexcept {
  const RingUse use;
  return first_of(*use, next_recent_line());
}

size_t read_recent_line(uint64_t number, std::span<char, kRecentLineBytesMax> to) noexcept {
  const RingUse use;
  return read_line(*use, number, to);
}

uint64_t for_each_recent_line(uint64_t first,
                              void (*see)(const char* line, size_t line_bytes, void* context),
                              void* context) noexcept {
  char line[kRecentLineBytesMax];
  const uint64_t end = next_recent_line();
  for (uint64_t i = std::max(first, first_recent_line()); i < end; ++i) {
    if (const size_t bytes = read_recent_line(i, line)) see(line, bytes, context);
  }
  return end;
}

void keep_lines_in(std::span<LineSlot> slots) noexcept {
  BP_ASSERT(ring.load() == &few && slots.size() >= kFewCount);
  lent.slots = slots.data();
  lent.count = slots.size();
  char line[kRecentLineBytesMax];
  const uint64_t end = next_recent_line();
  for (uint64_t i = first_of(few, end); i < end; ++i) {
    if (const size_t bytes = read_line(few, i, line)) write_line(lent, i, line, bytes);
  }
  ring.store(&lent, std::memory_order_seq_cst);
}

void keep_few_lines() noexcept {
  if (ring.load() == &few) return;
  char line[kRecentLineBytesMax];
  const uint64_t end = next_recent_line();
  for (uint64_t i = first_of(few, end); i < end; ++i) {
    if (const size_t bytes = read_line(lent, i, line)) write_line(few, i, line, bytes);
  }
  ring.store(&few, std::memory_order_seq_cst);
  while (lent.users.load(std::memory_order_seq_cst) != 0) sched_yield();
  BP_DCHECK(ring.load() == &few);  // no thread has lent slots meanwhile
}

}  // namespace bedplate
