// The signals of an appliance: those that stop it, those that are counted, and the wait for them,
// in which the main thread shows that the process runs.
//
// hold() blocks them before there are threads, which inherit the mask; wait() alone takes them. A
// signal that the program handles or ignores itself stays its own (nohup has it ignore SIGHUP), but
// for the two that always stop.
//
// Threads: the main thread's; pulse() is read by any.
#pragma once

#include <csignal>
#include <cstdint>

#include "apps/boot/runtime_counters.h"
#include "platform/log_limit.h"
#include "platform/process_pulse.h"

namespace bedplate {

class ApplianceSignals {
 public:
  // Before there are other threads. `is_first_process`: of a machine. SIGHUP means nothing to it:
  // it has no terminal.
  void hold(bool is_first_process) noexcept;
  // Counts ignored signals in `counters`, which outlive the waits.
  void count_in(SignalCounters& counters) noexcept { counters_ = &counters; }
  // Beats the pulse at least so often while it waits.
  void give_pulse(uint64_t period_ns) noexcept {
    pulse_period_ns_ = period_ns;
    pulse_.set_period(period_ns);
  }
  const ProcessPulse& pulse() const noexcept { return pulse_; }

  // Waits for at most `wait_ns`. Returns the number of a signal that stops the appliance, or -1. A
  // signal that would end the process without a drain, and means nothing here, is counted, and
  // logged in the name of `appliance`. Requires: count_in() was called.
  int wait(uint64_t wait_ns, const char* appliance) noexcept;

 private:
  int wait_with_pulse(uint64_t wait_ns, siginfo_t* from) noexcept;

  sigset_t stop_signals_ = {};
  sigset_t held_signals_ = {};    // with those that are ignored
  uint64_t pulse_period_ns_ = 0;  // 0: nobody asks for the pulse
  ProcessPulse pulse_;            // of this thread, as it waits for signals
  SignalCounters* counters_ = nullptr;
  LogLimit limit_{10};
};

}  // namespace bedplate
