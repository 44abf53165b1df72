// The counters file: who writes, who reads, and what is said when it is not what it should be.
#include "apps/boot/counters_file.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(CountersFile) {
  char root[64] = "/tmp/bedplate-counters-XXXXXX";
  std::string directory;

  void setup() override {
    CHECK(mkdtemp(root) != nullptr);
    directory = std::string(root) + "/run";
  }
  // Whatever a test leaves in it makes this fail.
  void teardown() override { LONGS_EQUAL(0, rmdir(root)); }

  std::string path(const std::string& name) { return directory + "/" + name + ".stats"; }
  static bool exists(const std::string& which) { return access(which.c_str(), F_OK) == 0; }

  static void unmap(const CountersSnapshot& snapshot) {
    munmap(const_cast<CountersLayout*>(snapshot.layout), sizeof(CountersLayout));
  }

  // A file as a crashed appliance leaves it: nobody holds its lock.
  void leave_behind(const std::string& name, uint64_t bytes, uint64_t magic, uint32_t version) {
    mkdir(directory.c_str(), 0755);
    const Fd fd(open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    LONGS_EQUAL(0, ftruncate(fd.number(), static_cast<off_t>(bytes)));
    if (bytes < sizeof(CountersLayout)) return;
    void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.number(), 0);
    auto* layout = static_cast<CountersLayout*>(mapping);
    layout->connections.requests_read.set(77);
    layout->version = version;
    layout->magic.store(magic, std::memory_order_release);
    munmap(mapping, bytes);
  }
  void remove_all(const std::string& name) {
    unlink(path(name).c_str());
    rmdir(directory.c_str());
  }

  void check_unreadable(const std::string& name, const char* answer) {
    const Result<CountersSnapshot> opened = open_counters(directory, name);
    CHECK(!opened.ok());
    STRCMP_EQUAL(answer, opened.error().answer);
    CHECK(opened.error().cure[0] != '\0');
  }
};

TEST(CountersFile, AReaderSeesWhatTheApplianceWrites) {
  CountersFile file;
  CHECK(file.create(directory, "demo").ok());
  file.layout().connections.requests_read.set(5);
  file.publish();
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  const CountersLayout& seen = *opened.value().layout;
  CHECK(opened.value().is_running);
  STRCMP_EQUAL("demo", seen.appliance.text);
  LONGS_EQUAL(getpid(), seen.pid);
  CHECK_EQUAL(5, seen.connections.requests_read.read());
  file.layout().connections.requests_read.add(1);  // it is live
  CHECK_EQUAL(6, seen.connections.requests_read.read());
  unmap(opened.value());
}

TEST(CountersFile, BeginsZeroedAndOnPagesOfItsOwn) {
  CountersFile file;
  CHECK(file.create(directory, "demo").ok());
  CHECK_EQUAL(0, file.layout().registrations_after_seal.read());
  CHECK_EQUAL(0, file.layout().connections.requests_read.read());
  CHECK_EQUAL(0, file.layout().owner_count);
  CHECK_EQUAL(0, reinterpret_cast<uintptr_t>(&file.layout()) % kCacheLineBytes);
}

TEST(CountersFile, TheOnlyOneNeedsNoName) {
  CountersFile file;
  CHECK(file.create(directory, "demo").ok());
  file.publish();
  Result<CountersSnapshot> opened = open_counters(directory, "");
  CHECK(opened.ok());
  STRCMP_EQUAL("demo", opened.value().layout->appliance.text);
  unmap(opened.value());
}

TEST(CountersFile, ACleanStopRemovesTheFileAndTheEmptyDirectory) {
  {
    CountersFile file;
    CHECK(file.create(directory, "demo").ok());
    CHECK(exists(path("demo")));
  }
  CHECK(!exists(path("demo")));
  CHECK(!exists(directory));
}

TEST(CountersFile, ADirectoryThatHoldsSomethingElseStays) {
  mkdir(directory.c_str(), 0755);
  const std::string note = directory + "/note";
  Fd(open(note.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)).close();
  { CountersFile file; CHECK(file.create(directory, "demo").ok()); }
  CHECK(exists(note));
  unlink(note.c_str());
  rmdir(directory.c_str());
}

TEST(CountersFile, CheckingLeavesEverythingAsItWas) {
  CHECK(check_counters_file(directory, "demo").ok());
  CHECK(!exists(directory));
  CountersFile file;
  CHECK(file.create(directory, "demo").ok());
  CHECK(check_counters_file(directory, "other").ok());
  CHECK(!exists(path("other")));
  const Result<void> taken = check_counters_file(directory, "demo");
  CHECK(!taken.ok());
  STRCMP_CONTAINS("one of this name is running", taken.error().answer);
  CHECK(exists(path("demo")));
}

TEST(CountersFile, CheckingKeepsTheCountersOfACrash) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  CHECK(check_counters_file(directory, "demo").ok());
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  CHECK_EQUAL(77, opened.value().layout->connections.requests_read.read());
  unmap(opened.value());
  remove_all("demo");
}

TEST(CountersFile, ADirectoryThatOthersUseStays) {
  auto* first = new CountersFile;
  CHECK(first->create(directory, "one").ok());
  {
    CountersFile second;
    CHECK(second.create(directory, "two").ok());
    delete first;
    CHECK(exists(path("two")));
    CHECK(!exists(path("one")));
  }
  CHECK(!exists(directory));  // the last one out
}

TEST(CountersFile, AnApplianceOfTheSameNameIsRefusedAndTheFirstUntouched) {
  CountersFile first;
  CHECK(first.create(directory, "demo").ok());
  first.layout().connections.requests_read.set(9);
  first.publish();
  {
    CountersFile second;
    const Result<void> made = second.create(directory, "demo");
    CHECK(!made.ok());
    STRCMP_EQUAL("starting the appliance demo", made.error().doing);
    STRCMP_EQUAL(("one of this name is running: it holds " + path("demo")).c_str(),
                 made.error().answer);
    STRCMP_EQUAL("stop it, or give this one another [appliance] name", made.error().cure);
  }
  CHECK(exists(path("demo")));
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  CHECK_EQUAL(9, opened.value().layout->connections.requests_read.read());
  unmap(opened.value());
}

TEST(CountersFile, ADirectoryThatCannotBeMadeIsRefused) {
  CountersFile file;
  const std::string missing = std::string(root) + "/none/run";
  const Result<void> made = file.create(missing, "demo");
  CHECK(!made.ok());
  STRCMP_EQUAL(("making the directory " + missing).c_str(), made.error().doing);
  STRCMP_EQUAL("No such file or directory", made.error().answer);
}

TEST(CountersFile, ADirectoryThatIsAFileIsRefused) {
  const Fd fd(open(directory.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  {
    CountersFile file;
    CHECK(!file.create(directory, "demo").ok());
  }
  unlink(directory.c_str());
}

TEST(CountersFile, AFileThatCannotBeOpenedIsRefused) {
  mkdir(directory.c_str(), 0755);
  mkdir(path("demo").c_str(), 0755);  // something else has its name
  {
    CountersFile file;
    const Result<void> made = file.create(directory, "demo");
    CHECK(!made.ok());
    STRCMP_EQUAL(("making the counters file " + path("demo")).c_str(), made.error().doing);
    STRCMP_EQUAL("Is a directory", made.error().answer);
  }
  rmdir(path("demo").c_str());
  rmdir(directory.c_str());
}

TEST(CountersFile, NobodyThereIsSaidWithACure) {
  const Result<CountersSnapshot> no_directory = open_counters(directory, "");
  CHECK(!no_directory.ok());
  STRCMP_EQUAL("No such file or directory", no_directory.error().answer);
  mkdir(directory.c_str(), 0755);
  check_unreadable("", "none is running");
  check_unreadable("demo", "No such file or directory");
  rmdir(directory.c_str());
}

TEST(CountersFile, AmongSeveralANameIsAskedForAndTheyAreNamed) {
  CountersFile one;
  CountersFile two;
  CHECK(one.create(directory, "one").ok());
  CHECK(two.create(directory, "two").ok());
  const Result<CountersSnapshot> opened = open_counters(directory, "");
  CHECK(!opened.ok());
  CHECK(opened.error().kind == ErrorKind::kConfiguration);
  CHECK(std::strncmp(opened.error().answer, "there are 2: ", 13) == 0);
  CHECK(std::strstr(opened.error().answer, "one") != nullptr);
  CHECK(std::strstr(opened.error().answer, "two") != nullptr);
}

TEST(CountersFile, BeforeItIsPublishedNobodyReadsIt) {
  CountersFile file;
  CHECK(file.create(directory, "demo").ok());
  check_unreadable("demo", "the file is not complete, or of another version");
}

TEST(CountersFile, AFileOfAnotherSizeOrVersionIsNotRead) {
  leave_behind("demo", 100, 0, 0);
  check_unreadable("demo", "the file has another size than this version writes");
  leave_behind("demo", sizeof(CountersLayout) + 1, kCountersMagic, kCountersVersion);
  check_unreadable("demo", "the file has another size than this version writes");
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion + 1);
  check_unreadable("demo", "the file is not complete, or of another version");
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic + 1, kCountersVersion);
  check_unreadable("demo", "the file is not complete, or of another version");
  remove_all("demo");
}

TEST(CountersFile, WhatACrashedOneLeftIsReadAsSuch) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  Result<CountersSnapshot> opened = open_counters(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running);
  CHECK_EQUAL(77, opened.value().layout->connections.requests_read.read());
  unmap(opened.value());
  remove_all("demo");
}

TEST(CountersFile, TheNextOneBeginsAnewWhereACrashedOneStopped) {
  leave_behind("demo", sizeof(CountersLayout), kCountersMagic, kCountersVersion);
  {
    CountersFile file;
    CHECK(file.create(directory, "demo").ok());
    CHECK_EQUAL(0, file.layout().connections.requests_read.read());
    check_unreadable("demo", "the file is not complete, or of another version");
    file.publish();
    Result<CountersSnapshot> opened = open_counters(directory, "demo");
    CHECK(opened.ok());
    CHECK(opened.value().is_running);
    unmap(opened.value());
  }
  CHECK(!exists(directory));
}
