#include "platform/progress.h"

#include <algorithm>
#include <cstdio>

#include "platform/log.h"
#include "platform/terminal_bar.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr size_t kTextBytesMax = 240;

constinit std::atomic<ProgressListener*> the_listener{nullptr};

uint64_t rounded(double number) noexcept {
  constexpr double kMax = 1e18;
  return static_cast<uint64_t>(std::min(number, kMax) + 0.5);
}

UnitText wait_text(double seconds) noexcept { return format_wait(rounded(seconds)); }

double seconds_of(uint64_t ns) noexcept {
  return static_cast<double>(ns) / static_cast<double>(kNsPerSecond);
}

// Whether a report is due at `*due_ns`, and this thread makes it.
bool is_due(std::atomic<uint64_t>* due_ns, uint64_t now_ns, uint64_t period_ns) noexcept {
  uint64_t expected = due_ns->load(std::memory_order_relaxed);
  return now_ns >= expected &&
         due_ns->compare_exchange_strong(expected, now_ns + period_ns, std::memory_order_relaxed);
}

}  // namespace

void set_progress_listener(ProgressListener* listener) noexcept {
  the_listener.store(listener, std::memory_order_release);
}

// The bar is announced a period before it is first drawn.
Progress::Progress(const char* doing, const ProgressOptions& options) noexcept
    : doing_(doing),
      options_(options),
      has_bar_(may_have_bar()),
      begun_ns_(options.now_ns()),
      listener_(the_listener.load(std::memory_order_acquire)),
      show_ns_(begun_ns_ + (has_bar_ ? kBarFirstNs - kBarPeriodNs : kLinePeriodNs)),
      tell_ns_(begun_ns_ + (listener_ == nullptr ? 0 : listener_->told_period_ns())) {}

Progress::~Progress() {
  const Bar bar = bar_.load(std::memory_order_relaxed);
  if (bar != Bar::kNone) withdraw_bar(bar == Bar::kDrawn);
}

void Progress::add(uint64_t bytes) noexcept {
  done_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  look();
}

uint64_t Progress::done_bytes() const noexcept {
  return std::min(done_bytes_.load(std::memory_order_relaxed), options_.total_bytes);
}

void Progress::look() noexcept {
  const uint64_t now_ns = options_.now_ns();
  const bool is_shown = is_due(&show_ns_, now_ns, has_bar_ ? kBarPeriodNs : kLinePeriodNs);
  const bool is_told =
      listener_ != nullptr && is_due(&tell_ns_, now_ns, listener_->told_period_ns());
  if (!is_shown && !is_told) return;
  char text[kTextBytesMax];
  write_text(text, sizeof text, now_ns);
  if (is_shown) show(text);
  if (is_told) tell(text, now_ns);
}

void Progress::show(const char* text) noexcept {
  if (!has_bar_) {
    BP_LOG_INFO("%s", text);
  } else if (bar_.load(std::memory_order_relaxed) == Bar::kNone) {
    announce_bar();
    bar_.store(Bar::kAnnounced, std::memory_order_relaxed);
  } else {
    bar_.store(Bar::kDrawn, std::memory_order_relaxed);
    draw_bar(text, static_cast<double>(done_bytes()), static_cast<double>(options_.total_bytes));
  }
}

void Progress::tell(const char* text, uint64_t now_ns) noexcept {
  uint64_t patience_ns = 0;
  const uint64_t done = done_bytes();
  if (done != told_bytes_.exchange(done, std::memory_order_relaxed)) patience_ns = kPieceNsMax;
  if (const uint64_t passed_ns = now_ns - begun_ns_; passed_ns < options_.wait_max_ns) {
    patience_ns = options_.wait_max_ns - passed_ns + kPieceNsMax;
  }
  listener_->told(text, patience_ns);
}

void Progress::write_text(char* text, size_t text_bytes) const noexcept {
  write_text(text, text_bytes, options_.now_ns());
}

void Progress::write_text(char* text, size_t text_bytes, uint64_t now_ns) const noexcept {
  const double passed_s = std::max(seconds_of(now_ns - begun_ns_), 1e-3);
  if (options_.total_bytes == 0) {
    const uint64_t wait_ns = options_.wait_max_ns;
    std::snprintf(text, text_bytes, "%s: for %s now%s%s%s", doing_, wait_text(passed_s).text,
                  wait_ns == 0 ? "" : ", ", wait_ns == 0 ? "" : wait_text(seconds_of(wait_ns)).text,
                  wait_ns == 0 ? "" : " at most");
    return;
  }
  const auto done = static_cast<double>(done_bytes());
  const auto total = static_cast<double>(options_.total_bytes);
  char left[48] = "";
  if (done > 0) {
    std::snprintf(left, sizeof left, ", %s left", wait_text((total - done) / done * passed_s).text);
  }
  std::snprintf(text, text_bytes, "%s: %s of %s (%.0f %%), %s/s%s", doing_,
                format_rounded_bytes(rounded(done)).text, format_rounded_bytes(rounded(total)).text,
                static_cast<double>(static_cast<int>(done * 100 / total)),
                format_rounded_bytes(rounded(done / passed_s)).text, left);
}

}  // namespace bedplate
