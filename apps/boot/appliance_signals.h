// The signals of an appliance: some stop it, others are counted. The main thread waits for them,
// and beats a pulse meanwhile, which shows that the process runs.
//
// hold() blocks them before any thread starts, so that all threads inherit the mask; wait() alone
// takes them. hold() leaves a signal to the program if the program handles, ignores or blocks it
// (nohup makes it ignore SIGHUP). SIGTERM and SIGINT always stop the appliance.
//
// Threads: main thread; pulse() may be read by any.
#pragma once

#include <csignal>
#include <cstdint>

#include "apps/boot/runtime_counters.h"
#include "platform/log_limit.h"
#include "platform/process_pulse.h"

namespace bedplate {

class ApplianceSignals {
 public:
  // Call it before other threads start. `is_first_process`: this is the machine's first process
  // (PID 1). It has no terminal, so SIGHUP means nothing to it.
  void hold(bool is_first_process) noexcept;
  // Counts ignored signals in `counters`, which outlives the waits.
  void count_in(SignalCounters& counters) noexcept { counters_ = &counters; }
  // Beats the pulse at least this often while it waits. Requires: `period_ns` is over 0.
  void give_pulse(uint64_t period_ns) noexcept {
    pulse_period_ns_ = period_ns;
    pulse_.set_period(period_ns);
  }
  const ProcessPulse& pulse() const noexcept { return pulse_; }

  // Waits for at most `wait_ns`. Returns the number of a signal that stops the appliance, or -1.
  // Other signals that would end the process without a drain are counted, and logged in the name of
  // `appliance`. Requires: count_in() was called; `wait_ns`, or the pulse's period, is below 1 s.
  int wait(uint64_t wait_ns, const char* appliance) noexcept;

 private:
  int wait_with_pulse(uint64_t wait_ns, siginfo_t* from) noexcept;

  sigset_t stop_signals_ = {};
  sigset_t held_signals_ = {};    // stop_signals_ and the ignored ones
  uint64_t pulse_period_ns_ = 0;  // 0: nobody asks for the pulse
  ProcessPulse pulse_;            // of the main thread, while it waits for signals
  SignalCounters* counters_ = nullptr;
  LogLimit limit_{10};
};

}  // namespace bedplate
