// Only one process runs under a name. Tests when a second process is refused, and when it is not.
#include "platform/name_lock.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(NameLock) {
  char root[64] = "/tmp/bedplate-name-XXXXXX";
  std::string directory;
  std::string path;

  void setup() override {
    CHECK(mkdtemp(root) != nullptr);
    directory = std::string(root) + "/run";
    path = directory + "/demo.lock";
  }
  // Fails if a test leaves a file in `root`.
  void teardown() override { LONGS_EQUAL(0, rmdir(root)); }

  static bool exists(const std::string& which) { return access(which.c_str(), F_OK) == 0; }
  static Fd make_file(const std::string& which, mode_t mode) {
    Fd fd(open(which.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    CHECK(fd.is_open());
    LONGS_EQUAL(0, fchmod(fd.number(), mode));
    return fd;
  }
  void check_refused(const char* words) {
    NameLock lock;
    const Result<void> taken = lock.take(directory, "demo");
    CHECK(!taken.ok());
    CHECK(!lock.is_taken());
    CHECK(!lock.is_nobody_elses());
    const std::string said =
        std::string(taken.error().doing) + ": " + taken.error().answer + "; " + taken.error().cure;
    STRCMP_CONTAINS(words, said.c_str());
  }
};

TEST(NameLock, ItIsItsUsersAloneAndNothingIsLeft) {
  {
    NameLock lock;
    CHECK(lock.take(directory, "demo").ok());
    struct stat status {};
    LONGS_EQUAL(0, stat(path.c_str(), &status));
    LONGS_EQUAL(0600, status.st_mode & 07777);
    CHECK(lock.is_taken());
    STRCMP_EQUAL("demo", lock.name().c_str());
  }
  CHECK(!exists(directory));
}

TEST(NameLock, TakingTwiceOrWhatIsNoNameIsAProgrammingError) {
  NameLock lock;
  CHECK(lock.is_valid());
  BP_CHECK_DIES("name.find('/') == std::string::npos", (void)lock.take(directory, "a/b"));
  BP_CHECK_DIES("!name.empty()", (void)lock.take(directory, ""));
  CHECK(lock.take(directory, "demo").ok());
  CHECK(lock.is_valid());
  BP_CHECK_DIES("assertion failed: !is_taken()", (void)lock.take(directory, "other"));
}

// Callers hold the path's parts by reference. If they changed them, the lock would remove the wrong
// file.
TEST(NameLock, APathThatIsNotTheNamesIsAProgrammingError) {
  NameLock lock;
  CHECK(lock.take(directory, "demo").ok());
  for (const std::string* part : {&lock.name(), &lock.directory()}) {
    auto& spoiled = const_cast<std::string&>(*part);
    spoiled += 'x';
    CHECK(!lock.is_valid());
    BP_CHECK_DIES("assertion failed: is_valid()", lock.~NameLock());
    spoiled.pop_back();
    CHECK(lock.is_valid());
  }
}

TEST(NameLock, TheSecondOfANameIsRefusedAndTheFirstUntouched) {
  NameLock first;
  CHECK(first.take(directory, "demo").ok());
  check_refused(("starting the appliance demo: an appliance of this name is running: it holds " +
                 path + "; stop it, or give this one another [appliance] name")
                    .c_str());
  CHECK(exists(path));
  NameLock other;
  CHECK(other.take(directory, "other").ok());
}

TEST(NameLock, WhatACrashLeftIsTakenOver) {
  mkdir(directory.c_str(), 0755);
  make_file(path, 0600);
  {
    NameLock lock;
    CHECK(lock.take(directory, "demo").ok());
  }
  CHECK(!exists(directory));
}

// The file of a running appliance was removed, and another appliance of the same name was started.
// The first appliance leaves the other's file alone.
TEST(NameLock, WhatAnotherHasMadeSinceStays) {
  auto* first = new NameLock;
  CHECK(first->take(directory, "demo").ok());
  unlink(path.c_str());
  NameLock second;
  CHECK(second.take(directory, "demo").ok());
  delete first;
  CHECK(exists(path));
  check_refused("an appliance of this name is running");
}

TEST(NameLock, AFileThatOthersCouldLockIsRefused) {
  mkdir(directory.c_str(), 0755);
  make_file(path, 0644);
  check_refused("demo.lock does not belong to this user alone (user ");
  unlink(path.c_str());
  mkfifo(path.c_str(), 0600);
  check_refused("demo.lock does not belong to this user alone (user ");
  unlink(path.c_str());
  mkdir(path.c_str(), 0700);
  check_refused("Is a directory; choose an [appliance] runtime_directory");
  rmdir(path.c_str());
  rmdir(directory.c_str());
}

TEST(NameLock, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) BP_SKIP("giving a file away takes root");
  mkdir(directory.c_str(), 0755);
  const Fd fd = make_file(path, 0600);
  LONGS_EQUAL(0, fchown(fd.number(), 65534, 65534));
  check_refused("(user 65534, mode 600); remove it; if it comes back, choose an [appliance] "
                "runtime_directory that only this user may write to");
  unlink(path.c_str());
  rmdir(directory.c_str());
}

TEST(NameLock, AnotherFileBehindALinkIsLeftAlone) {
  mkdir(directory.c_str(), 0755);
  const std::string other = directory + "/other";
  make_file(other, 0600);
  LONGS_EQUAL(0, symlink(other.c_str(), path.c_str()));
  check_refused("demo.lock is a symbolic link; remove it");
  unlink(path.c_str());
  unlink(other.c_str());
  rmdir(directory.c_str());
}

TEST(NameLock, ADirectoryWhereAnybodyMayRemoveFilesIsRefused) {
  mkdir(directory.c_str(), 0755);
  chmod(directory.c_str(), 0777);
  check_refused(("any user may remove files in its runtime directory " + directory +
                 "; chmod o-w " + directory)
                    .c_str());
  chmod(directory.c_str(), 01777);  // sticky, as /tmp: users remove only their own files
  {
    NameLock lock;
    CHECK(lock.take(directory, "demo").ok());
  }
  CHECK(!exists(directory));
}

TEST(NameLock, ADirectoryThatCannotBeMadeIsRefused) {
  NameLock lock;
  const std::string missing = std::string(root) + "/none/run";
  const Result<void> taken = lock.take(missing, "demo");
  CHECK(!taken.ok());
  STRCMP_EQUAL(("making the directory " + missing).c_str(), taken.error().doing);
  STRCMP_EQUAL("No such file or directory", taken.error().answer);
  STRCMP_CONTAINS("runtime_directory", taken.error().cure);
  CHECK(lock.is_nobody_elses());
}

TEST(NameLock, ADirectoryThatIsAFileIsRefused) {
  make_file(directory, 0644);
  check_refused("Not a directory");
  unlink(directory.c_str());
}
