#include "apps/boot/supervision.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "platform/log.h"
#include "platform/product.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Turns within the watchdog's period: the second turn after half of it answers.
constexpr uint64_t kTurnsPerWatchdog = 8;
constexpr size_t kStatusBytesMax = 256;

}  // namespace

void Supervision::open() noexcept {
  if (auto opened = supervisor_.open(); !opened.ok()) {
    const Error& error = opened.error();
    BP_LOG_WARNING("%s: %s; it gets no notifications; %s", error.doing, error.answer, error.cure);
  }
  if (is_there()) set_progress_listener(this);
}

Supervision::~Supervision() {
  if (is_there()) set_progress_listener(nullptr);
}

void Supervision::told(const char* text, uint64_t patience_ns) noexcept {
  patience_ns > 0 ? supervisor_.status(text, patience_ns) : supervisor_.status(text);
}

void Supervision::begins(const char* step, const char* whose) noexcept {
  if (!is_there()) return;
  char text[kStatusBytesMax];
  std::snprintf(text, sizeof text, "booting: %s%s%s", whose, *whose != '\0' ? ": " : "", step);
  supervisor_.status(text, kStepNs);
}

void Supervision::watch(const Counter& rounds, Doorbell& doorbell) {
  loops_.push_back({&rounds, &doorbell});
}

void Supervision::serves(uint64_t now_ns) noexcept {
  note_at_ns_ = now_ns;
  turn(0, now_ns);
}

void Supervision::drains(uint64_t patience_ns) noexcept {
  is_draining_ = true;
  supervisor_.stopping(patience_ns + kEndNs);
}

uint64_t Supervision::turn_ns_max() const noexcept {
  const uint64_t watchdog_ns = supervisor_.watchdog_ns();
  return watchdog_ns == 0 ? ~uint64_t{0} : std::max(watchdog_ns / kTurnsPerWatchdog, kNsPerMs);
}

void Supervision::turn(uint32_t alert_count, uint64_t now_ns) noexcept {
  if (!is_there()) return;
  // READY is sent again until the supervisor has taken it.
  if (!is_ready_told_) is_ready_told_ = supervisor_.ready();
  if (alert_count != told_alerts_ && !is_draining_) tell_alerts(alert_count);
  if (supervisor_.watchdog_ns() > 0) answer_watchdog(now_ns);
}

void Supervision::tell_alerts(uint32_t count) noexcept {
  char text[kStatusBytesMax] = "ready";
  if (count > 0) {
    std::snprintf(text, sizeof text, "ready; %" PRIu32 " need%s a look: %s top", count,
                  count == 1 ? "s" : "", product().name);
  }
  if (supervisor_.status(text)) told_alerts_ = count;
}

bool Supervision::have_all_gone_on() const noexcept {
  return std::all_of(loops_.begin(), loops_.end(),
                     [](const Loop& loop) { return loop.rounds->read() != loop.noted; });
}

void Supervision::answer_watchdog(uint64_t now_ns) noexcept {
  if (is_noted_) {
    if (have_all_gone_on() && supervisor_.alive()) is_noted_ = false;
    return;
  }
  if (now_ns < note_at_ns_) return;
  note_at_ns_ = now_ns + supervisor_.watchdog_ns() / 2;
  for (Loop& loop : loops_) {
    loop.noted = loop.rounds->read();
    loop.doorbell->ring();
  }
  is_noted_ = true;
}

}  // namespace bedplate
