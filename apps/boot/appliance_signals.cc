#include "apps/boot/appliance_signals.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/stop_signals.h"

namespace bedplate {

void ApplianceSignals::hold(bool is_first_process) noexcept {
  held_signals_ = stop_signals_ = stop_signals();
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGIO, SIGPWR}) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    const bool is_own = action.sa_handler != SIG_DFL || sigismember(&blocked, number) != 0;
    if (is_own) continue;
    sigaddset(&held_signals_, number);
    if (number == SIGHUP && !is_first_process) sigaddset(&stop_signals_, number);
  }
  pthread_sigmask(SIG_BLOCK, &held_signals_, nullptr);
}

// The pulse beats only during this wait: a late beat then means that the kernel did not let the
// thread run. Returns the number of the signal that came, or -1 after `wait_ns`.
int ApplianceSignals::wait_with_pulse(uint64_t wait_ns, siginfo_t* from) noexcept {
  const uint64_t piece_ns = pulse_period_ns_ == 0 ? wait_ns : std::min(wait_ns, pulse_period_ns_);
  const timespec piece = {0, static_cast<long>(piece_ns)};
  int number = -1;
  uint64_t now_ns = monotonic_ns();
  const uint64_t end_ns = now_ns + wait_ns;
  do {
    pulse_.beat(now_ns);
    number = sigtimedwait(&held_signals_, from, &piece);
    now_ns = monotonic_ns();
  } while (number < 0 && now_ns < end_ns);
  pulse_.rest(now_ns);
  return number;
}

int ApplianceSignals::wait(uint64_t wait_ns, const char* appliance) noexcept {
  BP_ASSERT(counters_ != nullptr);
  siginfo_t from = {};
  const int number = wait_with_pulse(wait_ns, &from);
  if (number < 0 || sigismember(&stop_signals_, number) != 0) return number;
  counters_->ignored.add(1);
  if (limit_.try_pass("signals")) {
    BP_LOG_WARNING("%s: signal %d (%s) of process %d is ignored", appliance, number,
                   sigabbrev_np(number), from.si_pid);
  }
  return -1;
}

}  // namespace bedplate
