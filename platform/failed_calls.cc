#include "platform/failed_calls.h"

#include <csignal>

#include "platform/assert.h"

namespace bedplate {

void keep_alive_on(int signal_number) noexcept {
  BP_ASSERT(signal_number == SIGXFSZ || signal_number == SIGPIPE);
  struct sigaction installed = {};
  sigaction(signal_number, nullptr, &installed);
  if ((installed.sa_flags & SA_SIGINFO) != 0 || installed.sa_handler != SIG_DFL) return;
  signal(signal_number, SIG_IGN);
}

}  // namespace bedplate
