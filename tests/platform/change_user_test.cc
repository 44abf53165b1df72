// Giving up root, in children of this process: it is for good.
#include "platform/change_user.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/capabilities.h"
#include "platform/every_thread.h"
#include "platform/thread_stack.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kNetBind = uint64_t{1} << 10;  // CAP_NET_BIND_SERVICE
constexpr uint64_t kSetUid = uint64_t{1} << 7;

std::atomic<bool> may_end{false};
std::atomic<bool> is_begun{false};
void wait_for_end(void* blocks_signals) noexcept {
  if (blocks_signals != nullptr) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
  }
  is_begun = true;
  while (!may_end) usleep(1000);
}

bool can_change() { return getuid() == 0 && try_user(find_user("nobody").take(), 0, {}).ok(); }

// Steps beside a thread that was there before.
int beside_a_thread(void* blocks_signals, int (*steps)()) {
  StackedThread thread;
  is_begun = may_end = false;
  if (!thread.start("early", &wait_for_end, blocks_signals).ok()) return 90;
  while (!is_begun) usleep(100);
  const int outcome = steps();
  may_end = true;
  thread.join();
  return outcome;
}

}  // namespace

TEST_GROUP(ChangeUser){};

TEST(ChangeUser, EveryThreadBecomesTheUserAndKeepsWhatIsAsked) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer has a thread of its own, which takes no signals");
  if (!can_change()) BP_SKIP("needs root that may become another user");
  LONGS_EQUAL(0, test::exit_code_of([] {
                return beside_a_thread(nullptr, [] {
                  if (!become_user(find_user("nobody").take(), kNetBind).ok()) return 1;
                  if (!check_capabilities(kNetBind).ok()) return 2;
                  if (check_capabilities(0).ok()) return 3;
                  if (geteuid() == 0 || setuid(0) == 0 || setgid(0) == 0) return 4;
                  return 0;
                });
              }));
}

TEST(ChangeUser, AWayBackIsFound) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer has a thread of its own, which takes no signals");
  if (!can_change()) BP_SKIP("needs root that may become another user");
  LONGS_EQUAL(0, test::exit_code_of([] {
                const auto became = become_user(find_user("nobody").take(), kSetUid);
                if (became.ok()) return 1;
                return std::string_view(became.error().answer) == "it can" ? 0 : 2;
              }));
}

TEST(ChangeUser, DirectoriesAreTriedAsTheUser) {
  if (!can_change()) BP_SKIP("needs root that may become another user");
  char directory[] = "/tmp/bedplate-user-XXXXXX";
  CHECK(mkdtemp(directory) != nullptr);
  const User nobody = find_user("nobody").take();
  const auto allows = [&] { return try_user(nobody, 0, {"/not/there", directory}).ok(); };
  CHECK_FALSE(allows());
  CHECK_EQUAL(0, chown(directory, nobody.id, nobody.group));
  CHECK(allows());
  CHECK_EQUAL(0, chown(directory, 0, 0));
  CHECK_EQUAL(0, chmod(directory, 01777));  // what root has made only root can remove
  CHECK_FALSE(allows());
  rmdir(directory);
  LONGS_EQUAL(0, geteuid());  // it was another process that tried
}
