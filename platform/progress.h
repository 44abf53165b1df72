// Reports the progress of long work: on a terminal by a bar after one second, elsewhere by a line
// every five seconds. A listener gets the reports, too, in its own period.
//
//     Progress progress("taking memory", {.total_bytes = bytes});
//     ... progress.add(chunk) ...        from any of the working threads
//
//     Progress progress("waiting for 10.0.0.1", {.wait_max_ns = timeout});
//     ... progress.look() ...            periodically, by the waiting thread
//
// The working threads make the reports themselves. No other thread watches them: it could only
// report that time passes. So work is cut into chunks of at most some tenths of a second.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "platform/clock.h"

namespace bedplate {

// A listener gets the reports of all long work of this process.
class ProgressListener {
 public:
  // The shortest time between two reports of one work. 0: every chunk is reported. Threads: any.
  virtual uint64_t told_period_ns() const noexcept { return kNsPerSecond; }
  // `text` describes the progress, and lasts for the call. `patience_ns`: the time after which the
  // work counts as stuck unless it is reported again; 0: no progress since the last report.
  // Threads: any of the working threads. Two calls can overlap if one lasts longer than the period.
  virtual void told(const char* text, uint64_t patience_ns) noexcept = 0;

 protected:
  ~ProgressListener() = default;
};

// Sets the one listener, or none (nullptr). A Progress keeps the listener that was set when it
// began. Threads: any, while no thread does long work.
void set_progress_listener(ProgressListener* listener) noexcept;

struct ProgressOptions {
  uint64_t total_bytes = 0;  // 0: the amount is unknown, for example of a wait
  uint64_t wait_max_ns = 0;  // the limit of a wait; 0: unknown
  uint64_t (*now_ns)() noexcept = &monotonic_ns;
};

class Progress {
 public:
  static constexpr uint64_t kBarFirstNs = kNsPerSecond;
  static constexpr uint64_t kBarPeriodNs = kNsPerSecond / 5;
  static constexpr uint64_t kLinePeriodNs = 5 * kNsPerSecond;
  // A thread that waits calls look() at least this often.
  static constexpr uint64_t kLookPeriodNs = kBarPeriodNs;
  // The work counts as stuck after this time without a chunk, or this long after the limit of a
  // wait.
  static constexpr uint64_t kPieceNsMax = 60 * kNsPerSecond;

  // `doing`: "taking memory"; it outlives this object.
  Progress(const char* doing, const ProgressOptions& options) noexcept;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Removes the bar from the terminal.
  ~Progress();

  // Adds `bytes` to the finished work. Threads: any. Cost: reading the clock.
  void add(uint64_t bytes) noexcept;
  // Makes a report if one is due; adds no work. Threads: any.
  void look() noexcept;

  // Writes the current report: "taking memory: 7.5 GiB of 16 GiB (46 %), 3.1 GiB/s, 3 s left".
  // Truncates it to `text_bytes`, and terminates it. Requires: text_bytes > 0.
  void write_text(char* text, size_t text_bytes) const noexcept;

 private:
  enum class Bar : uint8_t { kNone, kAnnounced, kDrawn };

  void write_text(char* text, size_t text_bytes, uint64_t now_ns) const noexcept;
  void show(const char* text) noexcept;
  void tell(const char* text, uint64_t now_ns) noexcept;
  uint64_t done_bytes() const noexcept;

  const char* const doing_;
  const ProgressOptions options_;
  const bool has_bar_;
  const uint64_t begun_ns_;
  ProgressListener* const listener_;
  std::atomic<uint64_t> done_bytes_{0};
  // The times of the next report. The thread that advances one makes that report.
  std::atomic<uint64_t> show_ns_;
  std::atomic<uint64_t> tell_ns_;
  std::atomic<Bar> bar_{Bar::kNone};
  std::atomic<uint64_t> told_bytes_{0};
};

}  // namespace bedplate
