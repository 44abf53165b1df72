// Stop signals stay pending until the program checks for them.
#include "platform/stop_signals.h"

#include <ctime>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(StopSignals){};

TEST(StopSignals, WaitUntilTheyAreLookedFor) {
  sigset_t before;
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  block_stop_signals();
  LONGS_EQUAL(0, waiting_stop_signal());
  for (const int number : {SIGTERM, SIGINT}) {
    pthread_kill(pthread_self(), number);
    LONGS_EQUAL(number, waiting_stop_signal());
    const timespec now = {};
    LONGS_EQUAL(number, sigtimedwait(&signals, nullptr, &now));
    LONGS_EQUAL(0, waiting_stop_signal());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
