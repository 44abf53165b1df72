// A process traced by the thread that made this object: stopped at its traps, and stepped through
// the instructions between them.
#pragma once

#include <cstdint>

#include <sys/types.h>

namespace bedplate::strain {

enum class Stop {
  kStepped,  // has executed one instruction
  kTrapped,  // at its next trap
  kEnded,    // dead; its status has been collected
  kNever,    // did not stop within the given time
};

class TracedProcess {
 public:
  TracedProcess() noexcept = default;
  TracedProcess(const TracedProcess&) = delete;
  TracedProcess& operator=(const TracedProcess&) = delete;
  ~TracedProcess() { end(); }

  // Traces `pid`, which dies with this thread.
  void trace(pid_t pid);
  bool is_there() const noexcept { return pid_ != 0; }
  pid_t pid() const noexcept { return pid_; }

  // Requires: it runs. Waits until it stops at a trap.
  Stop wait_for_trap(uint64_t within_ns) noexcept;
  // Requires: it is stopped.
  Stop step() noexcept;
  void go_on() noexcept;
  // Whether the process has ended by itself. Requires: it runs.
  bool has_ended() noexcept;
  // A copy of its descriptor `fd`; -1: there is none.
  int descriptor(int fd) const noexcept;
  // Kills the process, and waits for its end.
  void end() noexcept;

 private:
  Stop stop_of(int status) noexcept;

  pid_t pid_ = 0;
};

}  // namespace bedplate::strain
