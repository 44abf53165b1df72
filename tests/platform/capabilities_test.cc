// Capabilities: their names; every thread loses the dropped ones.
#include "platform/capabilities.h"

#include <atomic>
#include <sys/prctl.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/thread_stack.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// The body of a thread.
void spin_until(void* flag) noexcept {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) cpu_relax();
}

}  // namespace

TEST_GROUP(Capabilities){};

TEST(Capabilities, HaveNames) {
  STRCMP_EQUAL("", name_capabilities(0).c_str());
  STRCMP_EQUAL("SYS_BOOT, SYS_PTRACE",
               name_capabilities(uint64_t{1} << 22 | uint64_t{1} << 19).c_str());
  STRCMP_EQUAL("SYS_BOOT, number 0, number 40",
               name_capabilities(uint64_t{1} << 22 | 1 | uint64_t{1} << 40).c_str());
}

TEST(Capabilities, DroppedAreGoneFromEveryLaterThread) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer has a thread of its own, which keeps them");
  if (prctl(PR_CAPBSET_READ, 8, 0, 0, 0) != 1 || getuid() != 0) BP_SKIP("needs CAP_SETPCAP");
  const int outcome = test::exit_code_of([] {
    const uint64_t kept = uint64_t{1} << 22;
    if (prctl(PR_CAPBSET_READ, 22, 0, 0, 0) != 1) return 99;
    if (!keep_capabilities(kept).ok()) return 1;
    if (!check_capabilities(kept).ok()) return 2;
    if (check_capabilities(0).ok()) return 3;
    StackedThread later;
    std::atomic<bool> may_end{false};
    if (!later.start("later", &spin_until, &may_end).ok()) return 6;
    const bool is_dropped = check_capabilities(kept).ok();
    may_end = true;
    later.join();
    if (!is_dropped) return 7;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 4;
    return setgid(4711) == 0 ? 5 : 0;
  });
  if (outcome == 99) BP_SKIP("this machine's root may not reboot it");
  LONGS_EQUAL(0, outcome);
}

TEST(Capabilities, AThreadThatKeptThemIsFound) {
  if (getuid() != 0 || prctl(PR_CAPBSET_READ, 8, 0, 0, 0) != 1) BP_SKIP("needs CAP_SETPCAP");
  LONGS_EQUAL(0, test::exit_code_of([] {
                StackedThread thread;
                std::atomic<bool> may_end{false};
                if (!thread.start("early", &spin_until, &may_end).ok()) return 1;
                const bool dropped = keep_capabilities(0).ok();
                const bool is_found = !check_capabilities(0).ok();
                may_end = true;
                thread.join();
                return dropped && is_found ? 0 : 2;
              }));
}
