#include "platform/terminal_bar.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include <sys/ioctl.h>
#include <unistd.h>

#include "platform/environment.h"
#include "platform/standard_error.h"

namespace bedplate {
namespace {

constexpr size_t kColumnsMax = 250;
constexpr size_t kColumnsOtherwise = 80;  // of a terminal that does not report its width
constexpr size_t kCellsMax = 24;
constexpr size_t kCellsMin = 8;
constexpr size_t kGap = 2;  // between the cells and the text

constinit std::atomic<int> announced{0};

// One column less than the terminal has: some terminals wrap after the last one.
size_t usable_columns() noexcept {
  winsize size = {};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const size_t columns = is_known ? size.ws_col : kColumnsOtherwise;
  return std::min(columns, kColumnsMax) - 1;
}

}  // namespace

bool may_have_bar() noexcept {
  if (!standard_error_is_terminal()) return false;
  const char* kind = environment_text("TERM");
  return kind != nullptr && *kind != '\0' && std::strcmp(kind, "dumb") != 0;
}

void announce_bar() noexcept { announced.fetch_add(1, std::memory_order_relaxed); }

bool is_bar_announced() noexcept { return announced.load(std::memory_order_relaxed) > 0; }

void withdraw_bar(bool is_drawn) noexcept {
  if (is_drawn) write_standard_error_now(kWipeLine, sizeof kWipeLine - 1);
  announced.fetch_sub(1, std::memory_order_relaxed);
}

void draw_bar(const char* text, double done, double total) noexcept {
  const size_t columns = usable_columns();
  const size_t text_bytes = std::min(std::strlen(text), columns);
  const size_t spare = columns - text_bytes;
  const size_t cells =
      total > 0 && spare >= kCellsMin + kGap ? std::min(kCellsMax, spare - kGap) : 0;
  char line[sizeof kWipeLine + kColumnsMax];
  std::memcpy(line, kWipeLine, sizeof kWipeLine - 1);
  size_t used = sizeof kWipeLine - 1;
  const double full = total > 0 ? done / total * static_cast<double>(cells) : 0;
  for (size_t i = 0; i < cells; ++i) line[used++] = static_cast<double>(i + 1) <= full ? '#' : '.';
  for (size_t i = 0; i < kGap && cells > 0; ++i) line[used++] = ' ';
  std::memcpy(line + used, text, text_bytes);
  write_standard_error_now(line, used + text_bytes);
}

}  // namespace bedplate
