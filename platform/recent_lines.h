// The last lines of the log, for later readers: the crash record, /log.
//
// They lie in a ring of slots of fixed length: 32 at first, or as many as keep_lines_in() lends. A
// line longer than a slot is truncated at a character boundary, with a mark. A reader gets whole
// lines only: a line overwritten during the read counts as gone.
//
// Invariant: a slot's words belong to its state: the state is kBeingWritten while they change, and
// names their line before and after. (read_recent_line checks the state before and after its copy.)
//
// Threads: any, also in signal handlers, except for keep_lines_in() and keep_few_lines(). Nothing
// is allocated. Only keep_few_lines() waits for other threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

struct LineSlot {
  static constexpr size_t kWordCount = 63;

  std::atomic<uint64_t> state{0};  // the line's number and length; 0: no line yet
  std::atomic<uint64_t> words[kWordCount] = {};
};
static_assert(sizeof(LineSlot) == 512);

// The most bytes that a line with its newline takes in a slot.
inline constexpr size_t kRecentLineBytesMax = LineSlot::kWordCount * sizeof(uint64_t);
// The mark at the end of a truncated line: U+2026, an ellipsis.
inline constexpr char kCutMark[] = "\xe2\x80\xa6";

// Keeps `line`, which ends with a newline. Loses it if another thread is writing to its slot: the
// two lines are then a whole ring apart.
void remember_line(const char* line, size_t line_bytes) noexcept;

// Lines are numbered from 0. first_recent_line() returns the number of the oldest kept line,
// next_recent_line() the number of the next line to be logged.
uint64_t first_recent_line() noexcept;
uint64_t next_recent_line() noexcept;
// Copies line `number`. Returns its length with its newline; 0: it is gone, not logged yet, or
// still being written.
size_t read_recent_line(uint64_t number, std::span<char, kRecentLineBytesMax> to) noexcept;

// Calls `see` for each kept line from number `first` on (0: all), oldest first, each with its
// newline. Returns the number of the next line, to go on from. A line that another thread is still
// writing is skipped, and lies before that number.
uint64_t for_each_recent_line(uint64_t first,
                              void (*see)(const char* line, size_t line_bytes, void* context),
                              void* context) noexcept;

// From now on lines lie in `slots`; the last 32 lines move there. Lines logged meanwhile may be
// lost, here and below.
// Requires: at least 32 slots, zeroed or lent before, which stay until keep_few_lines(); no others
// are lent.
// Threads: one at a time, here and below.
void keep_lines_in(std::span<LineSlot> slots) noexcept;
// Undoes keep_lines_in(), if slots are lent. When it returns, no thread uses the slots any more.
void keep_few_lines() noexcept;

}  // namespace bedplate
