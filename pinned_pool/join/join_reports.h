// Reports the joins, leaves and deaths of processes. The server's owner gets each as a JoinEvent,
// and decides what to do; the log gets the errors, within limits.
//
// Each source of events has a limit of messages in each period (log_period_ns, ten seconds by
// default). Unknown processes, and users that may not use the name, have kLinesOfStrangers
// together. Each `[[process]]` has kLinesOfGrant, and kLinesOfProcess more for each process that it
// may have at once. Each event counts as a message, also without an error. Messages beyond the
// limit are counted, and the count is logged.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <sys/types.h>

#include "pinned_pool/join/join_connections.h"
#include "pinned_pool/join/join_roster.h"
#include "platform/log_limit.h"
#include "platform/result.h"
#include "platform/thread_owner.h"

namespace bedplate {

struct JoinEvent {
  enum class Kind : uint8_t {
    kJoined,   // alive
    kRefused,  // no part was given
    kFailed,   // it was admitted, but could not use its part or was not ready in time
    kLeft,     // it sent kLeave; dead in the table
    kDied,     // it ended, hung up, or was cut off; dead in the table
    kQuiet,
    kFreed,  // its part is free for another process
  };
  Kind kind = Kind::kJoined;
  MemberName process;  // empty: it gave no name
  pid_t pid = 0;
  // All three are 0 for kRefused.
  uint32_t group = 0;
  uint32_t member = 0;  // its first member
  uint32_t member_count = 0;
  bool is_trusted = false;    // false for kRefused
  Error error = {};           // why, for kRefused, kFailed and kDied
  bool may_be_logged = true;  // false: its source is over its limit
};

const char* to_text(JoinEvent::Kind kind) noexcept;

// Threads: the control thread's.
class JoinReports {
 public:
  using OnEvent = std::function<void(const JoinEvent&)>;

  static constexpr uint32_t kLinesOfStrangers = 16;
  static constexpr uint32_t kLinesOfGrant = 16;
  static constexpr uint32_t kLinesOfProcess = 8;

  // `control` is the control thread; it and the roster outlive this. `on_event` may be empty.
  JoinReports(const JoinRoster& roster, const ThreadOwner& control, OnEvent on_event,
              uint64_t log_period_ns);

  // Logs `error`, unless it is empty or over the limit, and calls `on_event` in any case.
  void tell(const JoinConnection& connection, JoinEvent::Kind kind,
            const Error& error = {}) noexcept;
  // Logs an error that does not concern a known process.
  void log_of_strangers(const Error& error) noexcept;

  // Logs the count of suppressed messages for periods that are over. Call it at due_ns().
  void lift_limits() noexcept;
  // The time of the next lift_limits(); UINT64_MAX: no message is suppressed.
  uint64_t due_ns() const noexcept;

 private:
  const char* source_of(uint32_t grant) const noexcept;

  const JoinRoster& roster_;
  const ThreadOwner& control_;
  OnEvent on_event_;
  std::vector<LogLimit> limits_;  // of each grant; the last one of strangers
};

}  // namespace bedplate
