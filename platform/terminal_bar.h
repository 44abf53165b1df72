// A progress bar at the bottom of the terminal, if standard error is one: a line that is redrawn in
// place while the log scrolls above it.
//
//     announce_bar()  ...  draw_bar(), draw_bar(), ...  withdraw_bar()
//
// From the announcement on, each line of the log first wipes the line with the cursor. A bar is
// drawn some time after its announcement, so that log lines that began before it are complete.
// Nothing waits for a terminal that does not take the bar (platform/standard_error.h).
#pragma once

#include <cstddef>

namespace bedplate {

// Whether a bar is possible: standard error is a terminal that can wipe a line (TERM is set, and
// not to dumb).
bool may_have_bar() noexcept;

// Announces a bar. If several are announced at the same time, the last one drawn is seen.
// Threads: any, here and below.
void announce_bar() noexcept;
// Ends one announcement. Wipes the bar if it is drawn.
void withdraw_bar(bool is_drawn) noexcept;
bool is_bar_announced() noexcept;

// Draws a row of cells for `done` of `total`, then `text`. Leaves out the cells if `total` is 0, or
// if fewer than 8 fit. Leaves out text beyond the terminal's columns: each byte counts as one
// column. Requires: it is announced.
void draw_bar(const char* text, double done, double total) noexcept;

// Moves to the beginning of the line, and clears the line.
inline constexpr char kWipeLine[] = "\r\x1b[K";

}  // namespace bedplate
