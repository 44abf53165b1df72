// libbedplate-malloc.a's fork(), linked before libc's: it fails if BEDPLATE_FORK, or the program's
// bedplate_fork, says so (pinned_pool/fork_rule.h).
//
// An atfork handler cannot make fork() fail. vfork, posix_spawn, system and popen are not affected:
// their children call exec at once. libc's own calls (daemon, forkpty) and raw system calls bypass
// this function.
#include <atomic>
#include <cerrno>

#include <unistd.h>

#include "alloc/interception_decision.h"
#include "pinned_pool/fork_rule.h"
#include "platform/log.h"

extern "C" pid_t __fork();  // libc's fork, by its internal name

// interception.cc refers to this, so that a program that links our malloc links this file as well.
extern "C" const char bedplate_fork_calls = 1;

namespace {

using namespace bedplate;

constinit std::atomic_flag has_told = ATOMIC_FLAG_INIT;

bool is_refused() noexcept {
  return interception_decision().backing == HeapBacking::kPool && fork_rule() == ForkRule::kRefuse;
}

void tell_refusal() noexcept {
  if (has_told.test_and_set()) return;
  Error error = error_while("forking").set_answer(
      "BEDPLATE_FORK, or bedplate_fork at link time, is set to refuse");
  log_error(error.set_cure("start programs by posix_spawn() or vfork(), or %s",
                           cure_for_uncopied_heap()));
}

}  // namespace

// ENOSYS: fork(2) returns it on machines that cannot fork. After EAGAIN programs would try again.
extern "C" pid_t fork() noexcept {
  if (!is_refused()) return __fork();
  tell_refusal();
  errno = ENOSYS;
  return -1;
}
