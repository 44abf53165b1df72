// The signals of an appliance: those that stop it, those that are counted, and the wait for them,
// in which the main thread shows that the process runs.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "apps/boot/appliance.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/stop_signals.h"

namespace bedplate {
namespace {

// Counters that nobody pushes (heap use, registrations) are brought up to date this often, or as
// often as the supervisor's watchdog needs.
constexpr uint64_t kRefreshNs = 500 * kNsPerMs;

}  // namespace

// Runs before there are threads, which inherit the mask: serve_until_signal alone takes these. A
// signal that the program handles or ignores itself stays its own (nohup has it ignore SIGHUP), but
// for the two that always stop.
void Appliance::hold_signals() noexcept {
  held_signals_ = stop_signals_ = stop_signals();
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGIO, SIGPWR}) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    const bool is_own = action.sa_handler != SIG_DFL || sigismember(&blocked, number) != 0;
    if (is_own) continue;
    sigaddset(&held_signals_, number);
    // SIGHUP means nothing to the first process of a machine: it has no terminal.
    if (number == SIGHUP && !configuration_.is_first_process) sigaddset(&stop_signals_, number);
  }
  pthread_sigmask(SIG_BLOCK, &held_signals_, nullptr);
}

// The pulse is this thread's: it is given only during this wait, when the thread is late only
// because it is not let run. Returns the number of a signal that came, or -1 after a while.
int Appliance::wait_with_pulse(siginfo_t* from) noexcept {
  const uint64_t refresh_ns = std::min(kRefreshNs, supervision_.turn_ns_max());
  const uint64_t piece_ns =
      pulse_period_ns_ == 0 ? refresh_ns : std::min(refresh_ns, pulse_period_ns_);
  const timespec piece = {0, static_cast<long>(piece_ns)};
  int number = -1;
  uint64_t now_ns = monotonic_ns();
  const uint64_t end_ns = now_ns + refresh_ns;
  do {
    pulse_.beat(now_ns);
    number = sigtimedwait(&held_signals_, from, &piece);
    now_ns = monotonic_ns();
  } while (number < 0 && now_ns < end_ns);
  pulse_.rest(now_ns);
  return number;
}

// Returns the number of a signal that stops it, or -1 after a while.
int Appliance::wait_for_signal() noexcept {
  siginfo_t from = {};
  const int number = wait_with_pulse(&from);
  if (number < 0 || sigismember(&stop_signals_, number) != 0) return number;
  signal_counters_->ignored.add(1);
  if (signal_limit_.try_pass("signals")) {
    BP_LOG_WARNING("%s: signal %d (%s) of process %d is ignored",
                   configuration_.appliance.name.c_str(), number, sigabbrev_np(number),
                   from.si_pid);
  }
  return -1;
}

}  // namespace bedplate
