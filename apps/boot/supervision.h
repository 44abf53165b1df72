// Reports to the supervisor of the process (systemd: platform/supervisor.h): each step of the boot,
// that the appliance serves, how many alerts there are, that all shards make progress, and that the
// appliance ends.
//
// Supervision answers the watchdog once in each half of its period, and only after a look at each
// shard:
//
//     half of the period is over   note how many rounds each loop has made, wake sleeping loops
//     at each turn after that      all have made a round since? then WATCHDOG=1, else nothing
//
// So the supervisor ends the process if a shard or the main thread is stuck. If a debugger or the
// supervisor stops the process and continues it, the answers go on as before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/counter.h"
#include "platform/progress.h"
#include "platform/supervisor.h"
#include "transport/loop/doorbell.h"

namespace bedplate {

// Threads: the main thread; told(): any.
class Supervision final : private ProgressListener {
 public:
  Supervision() noexcept = default;
  Supervision(const Supervision&) = delete;
  Supervision& operator=(const Supervision&) = delete;
  ~Supervision();

  // Call it before other threads start. If the supervisor cannot be reached, logs a warning.
  void open() noexcept;
  bool is_there() const noexcept { return supervisor_.is_there(); }

  // The boot begins this step. It may take kStepNs, and longer as long as it reports progress
  // (platform/progress.h). `whose`: the name of a service or a shard.
  void begins(const char* step, const char* whose = "") noexcept;
  // Adds a loop to look at. Call it before the seal: it allocates. Both outlive serving.
  void watch(const Counter& rounds, Doorbell& doorbell);
  // The appliance serves: from now on the caller calls turn() at least every turn_ns_max().
  void serves(uint64_t now_ns) noexcept;
  // The appliance ends: work that clients and files have begun may take `patience_ns`, the rest
  // kEndNs.
  void drains(uint64_t patience_ns) noexcept;

  // Reports readiness until the supervisor has taken it, reports a changed number of alerts, and
  // answers the watchdog. `now_ns` is monotonic_ns().
  void turn(uint32_t alert_count, uint64_t now_ns) noexcept;
  // An eighth of the watchdog's period; all ones without a watchdog.
  uint64_t turn_ns_max() const noexcept;

  // Far longer than a step takes without a report of progress.
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
  bool is_noted_ = false;    // rounds are noted, and the watchdog is not answered yet
  uint64_t note_at_ns_ = 0;  // when half of the watchdog's period is over
};

}  // namespace bedplate
