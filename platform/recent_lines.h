// The last lines of the log, for those that come later: the record of a crash, /log.
//
// They lie in a ring of slots of a fixed length: 32 from the start, or as many as somebody lends. A
// line that is longer than a slot is cut off before a character, with a mark. A reader gets whole
// lines only: one that is overwritten meanwhile counts as gone.
//
// Invariant: a slot's words belong to its state: the state is kBeingWritten while they change, and
// names their line before and after. (read_recent_line looks at it twice.)
//
// Threads: any, also in signal handlers, but for the two functions that change where lines lie.
// Nothing is allocated, nobody waits for another.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

struct LineSlot {
  static constexpr size_t kWordCount = 63;

  std::atomic<uint64_t> state{0};  // the line's number and length; 0: there was none yet
  std::atomic<uint64_t> words[kWordCount] = {};
};
static_assert(sizeof(LineSlot) == 512);

// The most bytes that a line with its newline takes in a slot.
inline constexpr size_t kRecentLineBytesMax = LineSlot::kWordCount * sizeof(uint64_t);
// The mark at the end of a line that was cut off: U+2026, an ellipsis.
inline constexpr char kCutMark[] = "\xe2\x80\xa6";

// Keeps `line`, which ends with a newline.
void remember_line(const char* line, size_t line_bytes) noexcept;

// Lines have numbers. The first function gives the oldest line that is kept, the second the next
// line to be logged.
uint64_t first_recent_line() noexcept;
uint64_t next_recent_line() noexcept;
// Copies line `number`. Returns its length with its newline; 0: it is gone, or not there yet.
size_t read_recent_line(uint64_t number, std::span<char, kRecentLineBytesMax> to) noexcept;

// Calls `see` for each of the last lines from number `first` on (0: all of them), oldest first,
// each with its newline. Returns the number of the next line, to go on from.
uint64_t for_each_recent_line(uint64_t first,
                              void (*see)(const char* line, size_t line_bytes, void* context),
                              void* context) noexcept;

// From now on lines lie in `slots`; the last of the present lines move there.
// Requires: zeroed or lent before, 32 at least, and they stay until keep_few_lines(); no others
// are lent.
// Threads: one at a time, here and below.
void keep_lines_in(std::span<LineSlot> slots) noexcept;
// Undoes keep_lines_in(). When it returns nobody uses the slots any more.
void keep_few_lines() noexcept;

}  // namespace bedplate
