// A bar at the bottom of the terminal that standard error is: a line that is written again and
// again over itself, while the log's lines go on above it.
//
//     announce_bar()  ...  draw_bar(), draw_bar(), ...  withdraw_bar()
//
// From its announcement on each line of the log first wipes the line that the cursor is in. So a
// bar is drawn a while after it was announced: a line that another thread was about to write has
// been written by then. Nothing waits for a terminal that does not take it
// (platform/standard_error.h).
#pragma once

#include <cstddef>

namespace bedplate {

// Whether there can be one: standard error is a terminal that knows how to wipe a line (TERM is
// set, and not to dumb).
bool may_have_bar() noexcept;

// Announces a bar. If several are announced at the same time, the last one drawn is seen.
// Threads: any, here and below.
void announce_bar() noexcept;
void withdraw_bar(bool is_drawn) noexcept;
bool is_bar_announced() noexcept;

// Shows `text`, headed by `done` of `total` in cells as far as there is room for them; total 0: by
// none. Text beyond the terminal's columns is left out. Requires: it is announced.
void draw_bar(const char* text, double done, double total) noexcept;

// To the beginning of the line, and nothing behind it.
inline constexpr char kWipeLine[] = "\r\x1b[K";

}  // namespace bedplate
