// A peer that cannot be attached, and the one line that says why.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/transport/single_copy/single_copy_rig.h"
#include "transport/single_copy/cma.h"

using namespace bedplate;
using test::CopyPeer;
using test::SingleCopyRig;
using test::text_of;

namespace {

constexpr uid_t kNobody = 65534;

}  // namespace

TEST_GROUP_BASE(SingleCopyJoin, SingleCopyRig){
    // Attaches to the peer in a process of the user nobody. Returns the error's text; empty: none.
    std::string attach_as_nobody(){
        const auto ended = test::run_forked([&] {
          CmaCopy own;
          PeerMemory remote;
          if (setgid(kNobody) != 0 || setuid(kNobody) != 0 || !own.create().ok()) _exit(9);
          const auto attached = own.attach(peer->as_peer(), peer->card(), remote);
          char text[1024];
          if (!attached.ok()) std::fputs(format_error(attached.error(), text, sizeof text), stderr);
        });
CHECK_EQUAL(0, ended.exit_code);
return ended.text;
}
}
;

TEST_EACH_KIND(SingleCopyJoin, DoesNotAttachToOneWhoEnded) {
  t.open(kind);
  t.peer->end(false);
  const std::string text = t.attach_error(t.peer->card());
  STRCMP_CONTAINS(" has ended", text.c_str());
}

TEST_EACH_KIND(SingleCopyJoin, DoesNotAttachToAnotherProcessThanTheCards) {
  t.open(kind);
  SingleCopyCard card = t.peer->card();
  card.proof_value[1] ^= 1;
  STRCMP_CONTAINS(": its memory does not match the card; the process that sent the card must have "
                  "this id here",
                  t.attach_error(card).c_str());
  card = t.peer->card();
  card.proof.bytes = 15;
  STRCMP_CONTAINS(": Invalid argument", t.attach_error(card).c_str());
  card.kind = kind == SingleCopyKind::kCma ? SingleCopyKind::kKnem : SingleCopyKind::kCma;
  STRCMP_CONTAINS(kind == SingleCopyKind::kCma ? ": it uses knem; configure the same order"
                                               : ": it uses cma; configure the same order",
                  t.attach_error(card).c_str());
}

// Not "it uses xpmem", the kind whose number is 0.
TEST_EACH_KIND(SingleCopyJoin, SaysThatThePeerHasNoSingleCopy) {
  t.open(kind);
  SingleCopyCard none;
  std::memset(static_cast<void*>(&none), 0, sizeof none);
  STRCMP_CONTAINS(": it has no single copy; let it have a kind that works there",
                  t.attach_error(none).c_str());
}

TEST(SingleCopyJoin, SaysThatThePeerIsAnotherUsers) {
  if (geteuid() != 0) BP_SKIP("not root: no second user");
  peer = std::make_unique<CopyPeer>(SingleCopyKind::kCma);
  const std::string text = attach_as_nobody();
  STRCMP_CONTAINS("with cma: Operation not permitted; this is user 65534, the process is user 0's: "
                  "run both as one user",
                  text.c_str());
}

TEST(SingleCopyJoin, SaysThatThePeerIsNotDumpable) {
  if (geteuid() != 0) BP_SKIP("not root: no second user");
  peer = std::make_unique<CopyPeer>(SingleCopyKind::kCma, [](CopyPeer::Inside&) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) _exit(1);
    if (!allow_peer(kAnyPeer).ok()) _exit(1);
  });
  STRCMP_EQUAL("", attach_as_nobody().c_str());
  peer->run([](CopyPeer::Inside&) { prctl(PR_SET_DUMPABLE, 0); });
  STRCMP_CONTAINS(
      "Operation not permitted; the process is not dumpable, as after a change of its user",
      attach_as_nobody().c_str());
}

TEST(SingleCopyJoin, SaysThatYamaForbidsItUnlessThePeerIsAllowed) {
  const char* scope = "/proc/sys/kernel/yama/ptrace_scope";
  if (std::getenv("BEDPLATE_DISPOSABLE_MACHINE") == nullptr) {
    BP_SKIP("would change how this machine guards its processes");
  }
  const auto before = read_number_file(scope);
  if (!before) BP_SKIP("this kernel has no Yama");
  const auto set = [&](uint64_t value) { std::ofstream(scope) << value; };
  set(1);
  peer = std::make_unique<CopyPeer>(SingleCopyKind::kCma, [](CopyPeer::Inside&) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) _exit(1);
  });
  const std::string forbidden = attach_as_nobody();
  peer->run([](CopyPeer::Inside&) {
    if (!allow_peer(kAnyPeer).ok()) _exit(1);
  });
  const std::string allowed = attach_as_nobody();
  set(2);
  const std::string strict = attach_as_nobody();
  set(*before);
  STRCMP_CONTAINS("kernel.yama.ptrace_scope is 1 and the process did not allow this one",
                  forbidden.c_str());
  STRCMP_EQUAL("", allowed.c_str());
  STRCMP_CONTAINS("kernel.yama.ptrace_scope is 2: give this process CAP_SYS_PTRACE",
                  strict.c_str());
}

TEST(SingleCopyJoin, SaysThatAFilterForbidsToAllowEveryPeer) {
  const auto ended = test::run_forked([] {
    if (!test::forbid_call(SYS_prctl, EPERM)) _exit(9);
    const auto allowed = allow_peer(kAnyPeer);
    char text[1024];
    if (!allowed.ok()) std::fputs(format_error(allowed.error(), text, sizeof text), stderr);
  });
  CHECK_EQUAL(0, ended.exit_code);
  STRCMP_CONTAINS(
      "allowing every process to copy from this one: Operation not permitted; a seccomp "
      "profile forbids prctl",
      ended.text);
}

TEST(SingleCopyJoin, AllowsPeersWithYamaAndWithout) {
  CHECK(allow_peer(kAnyPeer).ok());
  CHECK(allow_peer(getppid()).ok());
}
