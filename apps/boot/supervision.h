// Tells the supervisor of the process (systemd: platform/supervisor.h) how the appliance is: each
// step of its boot, that it serves, how many alerts there are, that all of its shards go on, and
// that it ends.
//
// Its watchdog is answered once for every half of its time, and only by a look at each shard:
//
//     half of the time is over   note how many rounds each loop has made, and wake those that sleep
//     at each turn from then on  have all made a round since? then WATCHDOG=1, else nothing
//
// So the process is ended if a shard is stuck, or the control thread. A process that the supervisor
// itself, or a debugger, has stopped goes on as before, if it is let.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/counter.h"
#include "platform/progress.h"
#include "platform/supervisor.h"
#include "transport/loop/doorbell.h"

namespace bedplate {

// Threads: the main thread's, but for told().
class Supervision final : private ProgressListener {
 public:
  Supervision() noexcept = default;
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;
  ~Supervision();

  // Before there are other threads. A supervisor that cannot be had is a warning of the log.
  void open() noexcept;
  bool is_there() const noexcept { return supervisor_.is_there(); }

  // The boot is at this step, which may take kStepNs, and longer as far as it says how far it is
  // (platform/progress.h). `whose`: a service's, a shard's.
  void begins(const char* step, const char* whose = "") noexcept;
  // A loop that is to be looked at. Before the seal: it allocates. Both outlive serving.
  void watch(const Counter& rounds, Doorbell& doorbell);
  // It serves: from here on turn() is called, turn_ns_max() after the last time at the latest.
  void serves(uint64_t now_ns) noexcept;
  // It ends: the work that clients and files have begun may take so long, and the rest kEndNs.
  void drains(uint64_t patience_ns) noexcept;

  void turn(uint32_t alert_count, uint64_t now_ns) noexcept;
  uint64_t turn_ns_max() const noexcept;

  // Far longer than a step takes, unless it says how far it is.
  static constexpr uint64_t kStepNs = 120 * kNsPerSecond;
  static constexpr uint64_t kEndNs = 30 * kNsPerSecond;

 private:
  struct Loop {
    const Counter* rounds = nullptr;
    Doorbell* doorbell = nullptr;
    uint64_t noted = 0;
  };
  static constexpr uint32_t kUntold = ~uint32_t{0};

  void told(const char* text, uint64_t patience_ns) noexcept override;
  void tell_alerts(uint32_t count) noexcept;
  void answer_watchdog(uint64_t now_ns) noexcept;
  bool have_all_gone_on() const noexcept;

  Supervisor supervisor_;
  std::vector<Loop> loops_;
  bool is_ready_told_ = false;
  bool is_draining_ = false;
  uint32_t told_alerts_ = kUntold;
  bool is_noted_ = false;    // and not answered yet
  uint64_t note_at_ns_ = 0;  // when half of the watchdog's time is over
};

}  // namespace bedplate
