// The choice of a kind of single copy, and the reasons against the other kinds.
#include <cstdio>
#include <string>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"
#include "tests/support/skip.h"
#include "transport/single_copy/cma.h"
#include "transport/single_copy/single_copy.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uid_t kNobody = 65534;

// Forbids `call` in this process, like the filter of a container.
void forbid(unsigned call) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{4, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    _exit(9);
  }
}

}  // namespace

TEST_GROUP(SingleCopyChoice) {
  std::string line(const SingleCopyChoice& choice, SingleCopyKind kind) {
    char text[1024];
    return choice.line(kind, text, sizeof text);
  }
  static constexpr SingleCopyKind kX = SingleCopyKind::kXpmem;
  static constexpr SingleCopyKind kC = SingleCopyKind::kCma;
  static constexpr SingleCopyKind kK = SingleCopyKind::kKnem;
  test::FakeRoot root;
  const std::string no_xpmem = root.path() + "/xpmem";
  const std::string no_knem = root.path() + "/knem";
  const SingleCopyDevices none{no_xpmem.c_str(), no_knem.c_str()};
};

TEST(SingleCopyChoice, TakesCmaWithoutModules) {
  const auto choice = choose_single_copy(kSingleCopyKinds, none);
  CHECK(choice.taken != nullptr);
  STRCMP_EQUAL("cma", choice.taken->name());
  STRCMP_EQUAL(("xpmem: opening " + no_xpmem +
                ": No such file or directory; load the module: modprobe xpmem (Debian does not "
                "package it: docs/single_copy.md)")
                   .c_str(),
               line(choice, kX).c_str());
  STRCMP_EQUAL("cma: chosen", line(choice, kC).c_str());
  STRCMP_EQUAL("knem: not tried: cma was chosen before it", line(choice, kK).c_str());
}

TEST(SingleCopyChoice, KeepsToTheOrder) {
  const SingleCopyKind last[] = {kK, kX, kC};
  auto choice = choose_single_copy(last, none);
  STRCMP_EQUAL("cma", choice.taken->name());
  STRCMP_CONTAINS("knem: opening ", line(choice, kK).c_str());
  STRCMP_CONTAINS("load the module: modprobe knem", line(choice, kK).c_str());
  const SingleCopyKind first[] = {kC, kX};
  choice = choose_single_copy(first, none);
  STRCMP_EQUAL("cma", choice.taken->name());
  STRCMP_EQUAL("xpmem: not tried: cma was chosen before it", line(choice, kX).c_str());
  STRCMP_EQUAL("knem: not in the configured order", line(choice, kK).c_str());
}

TEST(SingleCopyChoice, OffTakesNone) {
  const auto choice = choose_single_copy({}, none);
  CHECK(choice.taken == nullptr);
  STRCMP_EQUAL("cma: single copy is off", line(choice, kC).c_str());
}

TEST(SingleCopyChoice, TakesNoneWhereNoneWorks) {
  const SingleCopyKind modules[] = {kX, kK};
  const auto choice = choose_single_copy(modules, none);
  CHECK(choice.taken == nullptr);
  STRCMP_CONTAINS("No such file", line(choice, kX).c_str());
  STRCMP_CONTAINS("No such file", line(choice, kK).c_str());
  STRCMP_EQUAL("cma: not in the configured order", line(choice, kC).c_str());
}

TEST(SingleCopyChoice, SaysThatAnotherDeviceLiesThere) {
  const auto choice = choose_single_copy(kSingleCopyKinds, {"/dev/null", "/dev/null"});
  STRCMP_EQUAL("xpmem: asking /dev/null for its version: Inappropriate ioctl for device; remove "
               "what is there, and load the module (modprobe xpmem)",
               line(choice, kX).c_str());
  const SingleCopyKind knem[] = {kK};
  STRCMP_EQUAL("knem: asking /dev/null for its version: Inappropriate ioctl for device; remove "
               "what is there, and load the module (modprobe knem)",
               line(choose_single_copy(knem, {"/dev/null", "/dev/null"}), kK).c_str());
}

TEST(SingleCopyChoice, SaysThatTheDeviceIsNotThisUsers) {
  if (geteuid() != 0) BP_SKIP("not root: no second user");
  root.write("/xpmem", "");
  chmod(no_xpmem.c_str(), 0600);
  chmod(root.path().c_str(), 0755);
  const auto ended = test::run_forked([&] {
    if (setuid(kNobody) != 0) _exit(9);
    char text[1024];
    const auto opened = open_single_copy(SingleCopyKind::kXpmem, none);
    if (!opened.ok()) std::fputs(format_error(opened.error(), text, sizeof text), stderr);
  });
  STRCMP_CONTAINS((no_xpmem + ": Permission denied; let this user open it: chmod 666 ").c_str(),
                  ended.text);
}

TEST(SingleCopyChoice, SaysThatAFilterForbidsCma) {
  for (const unsigned call : {SYS_process_vm_readv, SYS_process_vm_writev}) {
    const auto ended = test::run_forked([&] {
      forbid(call);
      CmaCopy own;
      char text[1024];
      const auto created = own.create();
      if (!created.ok()) std::fputs(format_error(created.error(), text, sizeof text), stderr);
    });
    STRCMP_CONTAINS("copying within this process with process_vm_readv: Operation not permitted; a "
                    "seccomp filter, as containers have, forbids it: allow process_vm_readv and "
                    "process_vm_writev",
                    ended.text);
  }
}

TEST(SingleCopyChoice, ALineIsCutOffWhereItDoesNotFit) {
  const auto choice = choose_single_copy({}, none);
  char text[8];
  STRCMP_EQUAL("knem: s", choice.line(kK, text, sizeof text));
  STRCMP_EQUAL("kn", choice.line(kK, text, 3));
}
