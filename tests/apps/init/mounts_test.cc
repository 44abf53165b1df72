// The mounts of the first process, in a child with a directory as its root. A simulated mount(2)
// succeeds for all types but one.
#include "apps/init/mounts.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include <fcntl.h>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/log.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// The type of file system that is refused, and the error.
constinit const char* refused_type = "";
constinit int refusal = 0;
constinit int mounted_count = 0;
constinit bool all_are_directories = true;

long mount_it(const uint64_t* arguments) {
  const auto* path = reinterpret_cast<const char*>(arguments[1]);
  const auto* type = reinterpret_cast<const char*>(arguments[2]);
  if (std::strcmp(type, refused_type) == 0) return -refusal;
  struct stat found = {};
  all_are_directories &=
      std::strcmp(type, "pstore") == 0 || (stat(path, &found) == 0 && S_ISDIR(found.st_mode));
  ++mounted_count;
  return 0;
}

}  // namespace

TEST_GROUP(Mounts) {
  char root[32] = "/tmp/bp_mounts_XXXXXX";

  void setup() override {
    if (getuid() != 0) BP_SKIP("needs root");
    CHECK(mkdtemp(root) != nullptr);
  }
  void teardown() override { std::filesystem::remove_all(root); }

  // Mounts all file systems in a child; those of `type` are refused with `error`. The exit code is
  // the number of mounts.
  test::Ended mount_all(const char* type, int error) {
    return test::run_forked([&] {
      refused_type = type;
      refusal = error;
      if (chroot(root) != 0 || chdir("/") != 0) _exit(90);
      if (!test::answer_calls(SYS_mount, &mount_it)) _exit(91);
      const auto mounted = mount_file_systems();
      if (!mounted.ok()) log_error(mounted.error());
      _exit(all_are_directories ? mounted_count : 92);
    });
  }
};

TEST(Mounts, EachHasItsDirectory) { LONGS_EQUAL(7, mount_all("", 0).exit_code); }

TEST(Mounts, WhatIsThereAlreadyIsLeft) {
  const test::Ended ended = mount_all("devtmpfs", EBUSY);
  LONGS_EQUAL(6, ended.exit_code);
  STRCMP_EQUAL("", ended.text);
}

TEST(Mounts, AKernelWithoutRecordsOfCrashesWillDo) {
  const test::Ended ended = mount_all("pstore", ENODEV);
  LONGS_EQUAL(6, ended.exit_code);
  STRCMP_EQUAL("", ended.text);
}

TEST(Mounts, AMountPointThatIsNoDirectoryIsTheImagesFault) {
  const Fd file(creat((std::string(root) + "/run").c_str(), 0644));
  const test::Ended ended = mount_all("", 0);
  CHECK(ended.said("/run") && ended.said("build the image again"));
  LONGS_EQUAL(3, ended.exit_code);
}

TEST(Mounts, AKernelWithoutOneThatIsNeededWillNot) {
  const test::Ended ended = mount_all("sysfs", ENODEV);
  CHECK(ended.said("mounting sysfs at /sys: No such device; boot a kernel that supports it"));
  LONGS_EQUAL(2, ended.exit_code);
  CHECK(mount_all("pstore", EPERM).said("mounting pstore at /sys/fs/pstore: Operation not"));
}
