#include "pinned_pool/audit.h"

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/file.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/hugepages.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kFirst = kPoolBase;
constexpr uint64_t kSecond = kPoolBase + kRegionBytes;
const uint64_t kDevice = makedev(0, 1);

}  // namespace

// Compares crafted text, in the format of /proc/<pid>/smaps, with a map of the pool.
TEST_GROUP(Auditor) {
  const char* const kNothingIsMapped = "boot: 16777216 of 16777216 bytes are not mapped; "
                                       "volume:ram0: 67108864 of 67108864 bytes are not mapped";
  PoolMap map;
  std::string text;

  void setup() override {
    map.segment_count = 2;
    map.segments[0] = {"boot", kFirst, 16 * kMiB, 4096, kDevice, 1029, 1};
    map.segments[1] = {"volume:ram0", kSecond, 64 * kMiB, 2 * kMiB, kDevice, 1030, 0};
  }

  // Adds one mapping of smaps, with lines that the audit checks and lines that it ignores. The
  // mapping's device and inode are those of the segment where it begins, unless `file` is given.
  void add(uint64_t begin, uint64_t end, const char* rights, uint64_t offset, uint64_t page_kib,
           const char* name, const char* file = nullptr, const char* flags = "lo sd") {
    const char* right_file = begin < kSecond ? "00:01 1029" : "00:01 1030";
    char lines[512];
    std::snprintf(lines, sizeof lines,
                  "%" PRIx64 "-%" PRIx64 " %s %08" PRIx64 " %s      %s\n"
                  "Size:           %8" PRIu64 " kB\n"
                  "KernelPageSize: %8" PRIu64 " kB\n"
                  "MMUPageSize:    %8" PRIu64 " kB\n"
                  "Rss:                   0 kB\n"
                  "VmFlags: rd wr sh mr mw me ms %s \n",
                  begin, end, rights, offset, file == nullptr ? right_file : file, name,
                  (end - begin) / kKiB, page_kib, page_kib, flags);
    text += lines;
  }
  static std::string range(uint64_t begin, uint64_t end) {
    char words[64];
    std::snprintf(words, sizeof words, "0x%" PRIx64 "-0x%" PRIx64, begin, end);
    return words;
  }
  void add_program() {
    add(0x400000, 0x500000, "r-xp", 0, 4, "/usr/bin/bedplate");
    add(0x1000000, 0x1100000, "rw-p", 0, 4, "[heap]");
  }
  void add_boot() { add(kFirst, kFirst + 16 * kMiB, "rw-s", 0, 4, "/memfd:boot (deleted)"); }
  void add_volume(const char* rights = "rw-s", uint64_t page_kib = 2048) {
    add(kSecond, kSecond + 64 * kMiB, rights, 0, page_kib, "/memfd:volume:ram0 (deleted)");
  }
  void add_libraries() {
    add(0x7ffff0000000, 0x7ffff1000000, "rw-p", 0, 4, "[stack]");
    add(0xffffffffff600000, 0xffffffffff601000, "--xp", 0, 4, "[vsyscall]");
  }
  void check_finding(const std::string& finding) {
    check_findings(finding == "ok" ? 0 : 1, finding);
  }
  void check_findings(uint32_t count, const std::string& findings) {
    const AuditReport report = audit();
    STRCMP_EQUAL(findings.c_str(), report.text);
    CHECK_EQUAL(count, report.finding_count);
    CHECK(report.ok == (count == 0));
  }
  AuditReport audit() {
    Auditor auditor(map);
    for (size_t start = 0; start < text.size();) {
      const size_t end = text.find('\n', start);
      auditor.line(text.substr(start, end - start).c_str());
      start = end + 1;
    }
    return auditor.finish();
  }
};

TEST(Auditor, WhatTheMapSaysIsOk) {
  add_program();
  add_boot();
  add_volume();
  add_libraries();
  check_finding("ok");
}

TEST(Auditor, SegmentInSeveralMappingsIsOk) {
  add(kFirst, kFirst + 4 * kMiB, "rw-s", 0, 4, "/memfd:boot (deleted)");
  add(kFirst + 4 * kMiB, kFirst + 16 * kMiB, "rw-s", 4 * kMiB, 4, "/memfd:boot (deleted)");
  add_volume();
  check_finding("ok");
}

// A heap that a fork copies is private memory without a file. The kernel lists two adjacent
// segments of this kind as one mapping.
TEST(Auditor, PrivateSegmentsAreOk) {
  map.segments[0] = {"boot", kFirst, 16 * kMiB, 4096, 0, 0, 1};
  add(kFirst, kFirst + 16 * kMiB, "rw-p", 0, 4, "", "00:00 0");
  add_volume();
  check_finding("ok");
  map.segments[0].bytes = kRegionBytes;
  map.segments[1] = {"heap:added", kSecond, 64 * kMiB, 4096, 0, 0, 1};
  text.clear();
  add(kFirst, kSecond + 64 * kMiB, "rw-p", 0, 4, "", "00:00 0");
  check_finding("ok");
  text.clear();
  add(kFirst, kSecond + 65 * kMiB, "rw-p", 0, 4, "", "00:00 0");
  check_finding("heap:added: a mapping runs 1048576 bytes over its end");
  text.clear();
  add(kFirst, kSecond + 63 * kMiB, "rw-p", 0, 4, "", "00:00 0");
  check_finding("heap:added: 1048576 of 67108864 bytes are not mapped");
}

TEST(Auditor, WhatIsNotPrivateInAPrivateSegmentIsFound) {
  map.segments[0] = {"boot", kFirst, 16 * kMiB, 4096, 0, 0, 1};
  add(kFirst, kFirst + 4 * kMiB, "rw-p", 0, 4, "", "00:00 0");
  add(kFirst + 4 * kMiB, kFirst + 8 * kMiB, "rw-s", 0, 4, "", "00:00 0");
  add(kFirst + 8 * kMiB, kFirst + 16 * kMiB, "rw-p", 0, 4, "/tmp/x", "fe:00 12");
  add_volume();
  check_findings(2, "boot: " + range(kFirst + 4 * kMiB, kFirst + 8 * kMiB) +
                        " has the rights rw-s, not rw-p; boot: " +
                        range(kFirst + 8 * kMiB, kFirst + 16 * kMiB) +
                        " maps another file: inode 12, /tmp/x");
}

TEST(Auditor, PoolThatIsNotMappedIsFound) {
  add_program();
  add_libraries();
  check_findings(2, kNothingIsMapped);
}

TEST(Auditor, NoTextAtAllIsNoProof) { check_findings(2, kNothingIsMapped); }

TEST(Auditor, HoleInTheMiddleIsFound) {
  add_boot();
  add(kSecond, kSecond + 32 * kMiB, "rw-s", 0, 2048, "/memfd:volume:ram0 (deleted)");
  add(kSecond + 34 * kMiB, kSecond + 64 * kMiB, "rw-s", 34 * kMiB, 2048,
      "/memfd:volume:ram0 (deleted)");
  check_finding("volume:ram0: 2097152 of 67108864 bytes are not mapped");
}

TEST(Auditor, HoleAtTheBeginningIsFound) {
  add(kFirst + 4096, kFirst + 16 * kMiB, "rw-s", 4096, 4, "/memfd:boot (deleted)");
  add_volume();
  check_finding("boot: 4096 of 16777216 bytes are not mapped");
}

TEST(Auditor, HoleAtTheEndIsFound) {
  add(kFirst, kFirst + 16 * kMiB - 4096, "rw-s", 0, 4, "/memfd:boot (deleted)");
  add_volume();
  check_finding("boot: 4096 of 16777216 bytes are not mapped");
}

TEST(Auditor, ForeignMappingInAGapIsFound) {
  add_boot();
  add(kFirst + 32 * kMiB, kFirst + 33 * kMiB, "rw-p", 0, 4, "", "00:00 0");
  add_volume();
  add(kSecond + 64 * kMiB, kSecond + 65 * kMiB, "r--s", 0, 4, "/tmp/a file", "fe:00 12");
  check_findings(2, range(kFirst + 32 * kMiB, kFirst + 33 * kMiB) +
                        " is mapped behind boot and is not a segment: rw-p, anonymous memory; " +
                        range(kSecond + 64 * kMiB, kSecond + 65 * kMiB) +
                        " is mapped behind volume:ram0 and is not a segment: r--s, /tmp/a file");
}

TEST(Auditor, ForeignMappingAcrossTheEdgesOfTheRangeIsFound) {
  add(kPoolBase - 4096, kPoolBase + 4096, "rw-p", 0, 4, "", "00:00 0");
  add(kPoolBase + 4096, kPoolBase + 16 * kMiB, "rw-s", 4096, 4, "/memfd:boot (deleted)");
  add_volume();
  check_findings(2, range(kPoolBase - 4096, kPoolBase + 4096) +
                        " is mapped before the pool and is not a segment: rw-p, anonymous memory; "
                        "boot: 4096 of 16777216 bytes are not mapped");
}

TEST(Auditor, MappingsBesideTheRangeAreNotLookedAt) {
  add(kPoolBase - 4096, kPoolBase, "rwxp", 0, 4, "");
  add_boot();
  add_volume();
  add(kPoolBase + kPoolSpanBytes, kPoolBase + kPoolSpanBytes + 4096, "rwxp", 0, 4, "");
  check_finding("ok");
}

TEST(Auditor, MappingOverTheEndOfItsSegmentIsFound) {
  add(kFirst, kFirst + 16 * kMiB + 8192, "rw-s", 0, 4, "/memfd:boot (deleted)");
  add_volume();
  check_finding("boot: a mapping runs 8192 bytes over its end");
}

TEST(Auditor, WrongRightsAreFound) {
  // rw-p is the segment's own memfd, mapped private: devices do not see what is written there.
  for (const char* rights : {"r--s", "-w-s", "---s", "rw-p", "rwxs", "r-xs"}) {
    text.clear();
    add_boot();
    add_volume(rights);
    check_finding("volume:ram0: " + range(kSecond, kSecond + 64 * kMiB) + " has the rights " +
                  rights + ", not rw-s");
  }
}

TEST(Auditor, LostLockIsFoundOfWhatWasLocked) {
  add(kFirst, kFirst + 4 * kMiB, "rw-s", 0, 4, "/memfd:boot (deleted)");
  add(kFirst + 4 * kMiB, kFirst + 8 * kMiB, "rw-s", 4 * kMiB, 4, "/memfd:boot (deleted)", nullptr,
      "sd");
  add(kFirst + 8 * kMiB, kFirst + 16 * kMiB, "rw-s", 8 * kMiB, 4, "/memfd:boot (deleted)");
  add(kSecond, kSecond + 64 * kMiB, "rw-s", 0, 2048, "/memfd:volume:ram0 (deleted)", nullptr, "ht");
  check_finding("boot: " + range(kFirst + 4 * kMiB, kFirst + 8 * kMiB) + " is no longer locked");
  map.segments[0].is_locked = 0;  // it could not be locked when it was made
  check_finding("ok");
}

TEST(Auditor, WrongPageSizeIsFound) {
  add_boot();
  add_volume("rw-s", 4);
  check_finding("volume:ram0: has pages of 4 KiB, not of 2 MiB");
}

TEST(Auditor, AnotherFileInItsPlaceIsFound) {
  // The audit compares a file's device and inode, not its name.
  const struct {
    const char* file;
    const char* told;
  } files[] = {{"00:05 7", "inode 7, /memfd:boot (deleted)"},
               {"00:05 1029", "inode 1029, /memfd:boot (deleted)"},
               {"00:01 1030", "inode 1030, /memfd:boot (deleted)"}};
  for (const auto& each : files) {
    text.clear();
    add(kFirst, kFirst + 4 * kMiB, "rw-s", 0, 4, "/memfd:boot (deleted)");
    add(kFirst + 4 * kMiB, kFirst + 5 * kMiB, "rw-s", 4 * kMiB, 4, "/memfd:boot (deleted)",
        each.file);
    add(kFirst + 5 * kMiB, kFirst + 16 * kMiB, "rw-s", 5 * kMiB, 4, "/memfd:boot (deleted)");
    add_volume();
    check_finding("boot: " + range(kFirst + 4 * kMiB, kFirst + 5 * kMiB) +
                  " maps another file: " + each.told);
  }
}

TEST(Auditor, FileOfAnyNameIsTheSegmentsByItsInode) {
  add(kFirst, kFirst + 16 * kMiB, "rw-s", 0, 4, "/memfd:a\\012b (deleted)");
  add_volume();
  check_finding("ok");
}

TEST(Auditor, AnotherPartOfItsFileIsFound) {
  add(kFirst, kFirst + 16 * kMiB, "rw-s", 4096, 4, "/memfd:boot (deleted)");
  add_volume();
  check_finding("boot: " + range(kFirst, kFirst + 16 * kMiB) +
                " maps another part of its file: offset 0x1000");
}

TEST(Auditor, EveryFindingIsTold) {
  add(kFirst, kFirst + 15 * kMiB, "r--s", 0, 4, "/memfd:boot (deleted)");
  add_volume("rw-p", 4);
  check_findings(
      4, "boot: " + range(kFirst, kFirst + 15 * kMiB) +
             " has the rights r--s, not rw-s; volume:ram0: " + range(kSecond, kSecond + 64 * kMiB) +
             " has the rights rw-p, not rw-s; volume:ram0: has pages of 4 KiB, not of 2 "
             "MiB; boot: 1048576 of 16777216 bytes are not mapped");
}

TEST(Auditor, MoreThanThereIsRoomForAreCounted) {
  std::string findings;
  for (uint64_t i = 0; i < 100; ++i) {
    const uint64_t begin = kFirst + 32 * kMiB + 8192 * i;
    add(begin, begin + 4096, "rw-p", 0, 4, "", "00:00 0");
    if (i < 10) {
      findings += range(begin, begin + 4096) +
                  " is mapped behind boot and is not a segment: rw-p, anonymous memory; ";
    }
  }
  add_boot();
  add_volume();
  check_findings(100, findings + "and 90 more");
}

TEST(Auditor, TheNumberOfThoseLeftOutIsWholeHoweverLongTheFindingsAre) {
  for (size_t length = 1; length < 120; ++length) {
    text.clear();
    for (uint64_t i = 0; i < 40; ++i) {
      const uint64_t begin = kFirst + 32 * kMiB + 8192 * i;
      add(begin, begin + 4096, "rw-p", 0, 4, std::string(length, '/').c_str(), "fe:00 12");
    }
    add_boot();
    add_volume();
    const AuditReport report = audit();
    CHECK_EQUAL(40, report.finding_count);
    CHECK(std::string(report.text).ends_with(" more"));
  }
}

TEST(Auditor, NonsenseIsNoMapping) {
  add_boot();
  text += "\n-\nzzzz-yyyy rw-s\n" + std::string(3000, '-') + "\nKernelPageSize: 7 kB trailing\n";
  // Page sizes of mappings that are not the pool's.
  add(0x7ffff0000000, 0x7ffff1000000, "rw-s", 0, 2048, "/dev/hugepages/x");
  add_volume();
  check_finding("boot: has pages of 7 KiB, not of 4 KiB");
}

// Audits of real mappings, in separate processes.
namespace {

// Audits this process, or process `pid`. Returns "ok" or the findings.
std::string finding_of(pid_t pid = 0) {
  static PoolMap map;
  process_pool().write_map(&map);
  auto report = audit_maps(map, pid);
  BP_PROBE_CHECK(report.ok());
  return report.value().text;
}

// For probes: checks that the audit's findings contain `words`; "ok" means no findings.
void check_finding(const char* words, pid_t pid = 0) {
  const std::string finding = finding_of(pid);
  const bool good =
      std::string("ok") == words ? finding == words : finding.find(words) != std::string::npos;
  if (!good) test::probe_failed(__FILE__, __LINE__, (words + (" in: " + finding)).c_str());
}

Segment& probe_segment() {
  return *process_pool().create_segment("heap", 8 * kMiB, PageSize::k4KiB, 1).take();
}

// Makes the system calls directly: a sanitizer's mlock and munlock do nothing.
int lock_again(std::byte* page) { return static_cast<int>(syscall(SYS_mlock, page, 4096)); }

int unlock(std::byte* page) { return static_cast<int>(syscall(SYS_munlock, page, 4096)); }

// Maps and locks the segment's own page at `page` again, and checks that nothing is found.
void mend(const Segment& segment, std::byte* page) {
  void* mapped = mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment.memfd,
                      page - segment.address);
  BP_PROBE_CHECK(mapped == page);
  lock_again(page);
  check_finding("ok");
}

}  // namespace

BP_PROBE(AuditOfTheRealMaps) {
  const Segment& segment = probe_segment();
  check_finding("ok");
  std::byte* page = segment.address + kMiB;

  BP_PROBE_CHECK(munmap(page, 4096) == 0);
  check_finding("heap: 4096 of 8388608 bytes are not mapped");
  mend(segment, page);

  BP_PROBE_CHECK(mprotect(page, 4096, PROT_READ) == 0);
  check_finding("has the rights r--s, not rw-s");
  mend(segment, page);

  const int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  BP_PROBE_CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, kPrivate, -1, 0) == page);
  check_finding("has the rights rw-p, not rw-s");
  mend(segment, page);

  const int kShared = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
  BP_PROBE_CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, kShared, -1, 0) == page);
  check_finding("maps another file");
  mend(segment, page);

  // The segment's own page, but private: devices do not see what is written there.
  BP_PROBE_CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, segment.memfd,
                      page - segment.address) == page);
  check_finding("has the rights rw-p, not rw-s");
  mend(segment, page);

  // Another memfd of the same name.
  const Fd impostor(memfd_create("heap", 0));
  BP_PROBE_CHECK(ftruncate(impostor.number(), 8 * kMiB) == 0);
  BP_PROBE_CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, impostor.number(),
                      page - segment.address) == page);
  check_finding("heap: 0x");
  check_finding("maps another file");
  mend(segment, page);

  // The same file, but another page of it.
  BP_PROBE_CHECK(
      mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment.memfd, 0) == page);
  check_finding("maps another part of its file");
  mend(segment, page);

  std::byte* gap = segment.address + 16 * kMiB;
  BP_PROBE_CHECK(mmap(gap, 4096, PROT_READ, kPrivate, -1, 0) == gap);
  check_finding("is mapped behind heap and is not a segment: r--p, anonymous memory");
  BP_PROBE_CHECK(munmap(gap, 4096) == 0);
  check_finding("ok");
}

BP_PROBE(AuditOfTheSealedPool) {
  probe_segment();
  process_pool().seal();
  check_finding("ok");
}

BP_PROBE(AuditOfPageSizes) {
  probe_segment();
  static PoolMap map;
  process_pool().write_map(&map);
  map.segments[1].page_bytes = 2 * kMiB;
  auto report = audit_maps(map, 0);
  BP_PROBE_CHECK(std::string("heap: has pages of 4 KiB, not of 2 MiB") == report.value().text);
  BP_PROBE_CHECK(!report.value().ok);
}

BP_PROBE(AuditOfHugepages) {
  const test::LentHugepages lent(4);
  if (!lent.are_there()) {
    test::probe_skipped("2 MiB hugepages cannot be reserved on this machine");
  }
  auto created = process_pool().create_segment("heap", 8 * kMiB, PageSize::k2MiB, 1);
  BP_PROBE_CHECK(created.ok());
  const Segment& segment = *created.value();
  check_finding("ok");
  BP_PROBE_CHECK(munmap(segment.address, 2 * kMiB) == 0);
  check_finding("heap: 2097152 of 8388608 bytes are not mapped");
  // Small pages of shared memory replace the hugepage.
  BP_PROBE_CHECK(mmap(segment.address, 2 * kMiB, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == segment.address);
  check_finding("maps another file");
}

BP_PROBE(AuditOfAnotherProcess) {
  const Segment& segment = probe_segment();
  int ends[2];
  BP_PROBE_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    munmap(segment.address, 8192);
    [[maybe_unused]] ssize_t moved = write(ends[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte;
  BP_PROBE_CHECK(read(ends[0], &byte, 1) == 1);
  const std::string child_finding = finding_of(child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  BP_PROBE_CHECK(child_finding.ends_with("heap: 8192 of 8388608 bytes are not mapped"));
  // A forked child has no locks: its audit reports this, and this process's audit does not. Memory
  // that was never locked is not reported.
  const bool is_told = child_finding.starts_with("boot: ") &&
                       child_finding.find("is no longer locked") != std::string::npos;
  const bool was_locked = process_pool().segment(0).lock_errno == 0;
  BP_PROBE_CHECK(is_told == was_locked);
  check_finding("ok", getpid());
}

BP_PROBE(AuditWithManyMappings) {
  // Every second page becomes a separate mapping, so that smaps is longer than any buffer.
  const Segment& segment = probe_segment();
  for (uint64_t at = 0; at < 2 * kMiB; at += 8192) {
    BP_PROBE_CHECK(mprotect(segment.address + at, 4096, PROT_READ) == 0);
  }
  check_finding("has the rights r--s");
  check_finding("; and 24");
  for (uint64_t at = 0; at < 2 * kMiB; at += 16384) {
    BP_PROBE_CHECK(mprotect(segment.address + at, 16384, PROT_READ | PROT_WRITE) == 0);
  }
  check_finding("ok");
}

BP_PROBE(AuditOfLocks) {
  const Segment& segment = probe_segment();
  std::byte* page = segment.address + kMiB;
  BP_PROBE_CHECK(unlock(page) == 0);
  check_finding("is no longer locked");
  BP_PROBE_CHECK(lock_again(page) == 0);
  check_finding("ok");
}

BP_PROBE(AuditOfALongPath) {
  // The path is longer than the audit's buffer. The audit still sees all mappings.
  const Segment& segment = probe_segment();
  char top[] = "/dev/shm/bedplate-audit-XXXXXX";
  const std::string step(250, 'd');
  constexpr int kDepth = 20;
  BP_PROBE_CHECK(mkdtemp(top) != nullptr && chdir(top) == 0);
  for (int i = 0; i < kDepth; ++i) {
    BP_PROBE_CHECK(mkdir(step.c_str(), 0700) == 0 && chdir(step.c_str()) == 0);
  }
  const Fd file(open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const bool is_sized = ftruncate(file.number(), 4096) == 0;
  void* gap = segment.address + 16 * kMiB;
  const int kFlags = MAP_SHARED | MAP_FIXED_NOREPLACE;
  const bool is_mapped = mmap(gap, 4096, PROT_READ, kFlags, file.number(), 0) == gap;
  const std::string finding = finding_of();
  unlink("file");
  for (int i = 0; i < kDepth && chdir("..") == 0; ++i) rmdir(step.c_str());
  rmdir(top);
  BP_PROBE_CHECK(is_sized && is_mapped);
  BP_PROBE_CHECK(finding.find("is mapped behind heap and is not a segment: r--s, /dev/shm/") !=
                 std::string::npos);
}

// Audits of a sound pool say "ok" whatever other threads do with their own memory and audits.
BP_PROBE(AuditFromManyThreads) {
  probe_segment();
  static PoolMap map;
  process_pool().write_map(&map);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&good] {
      for (int k = 0; k < 20; ++k) {
        void* other =
            mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        auto report = audit_maps(map, 0);
        if (report.ok() && report.value().ok) ++good;
        munmap(other, 8192);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  BP_PROBE_CHECK(good == 8 * 20);
}

BP_PROBE(AuditWithAnExhaustedHeap) {
  if (test::kIsSanitized) test::probe_skipped("malloc is the sanitizer's in this build");
  static PoolMap map;
  process_pool().write_map(&map);
  map.segments[0].bytes += 4096;
  void* volatile block = nullptr;  // else the compiler may assume that malloc succeeds
  for (size_t bytes = kMiB; bytes >= 8; bytes -= bytes > 1024 ? bytes / 2 : 8) {
    do block = std::malloc(bytes);
    while (block != nullptr);
  }
  auto report = audit_maps(map, 0);
  BP_PROBE_CHECK(report.ok());
  BP_PROBE_CHECK(std::strstr(report.value().text, "boot: 4096 of ") == report.value().text);
  block = std::malloc(8);
  BP_PROBE_CHECK(block == nullptr);
}

TEST_GROUP(Audit){};

TEST(Audit, FindsWhatWasDoneToThePool) { BP_CHECK_PROBE(AuditOfTheRealMaps); }

TEST(Audit, SealedPoolIsOk) { BP_CHECK_PROBE(AuditOfTheSealedPool); }

TEST(Audit, FindsAWrongPageSize) { BP_CHECK_PROBE(AuditOfPageSizes); }

TEST(Audit, WorksOnHugepages) { BP_CHECK_PROBE(AuditOfHugepages); }

TEST(Audit, WorksFromAnotherProcess) { BP_CHECK_PROBE(AuditOfAnotherProcess); }

TEST(Audit, FindsALostLock) { BP_CHECK_PROBE(AuditOfLocks); }

TEST(Audit, CopesWithALongPath) { BP_CHECK_PROBE(AuditOfALongPath); }

TEST(Audit, WorksFromManyThreadsAtOnce) { BP_CHECK_PROBE(AuditFromManyThreads); }

TEST(Audit, NeedsNoHeap) { BP_CHECK_PROBE(AuditWithAnExhaustedHeap); }

TEST(Audit, CopesWithManyMappings) { BP_CHECK_PROBE(AuditWithManyMappings); }

TEST(Audit, ProcessThatDoesNotExistIsAnErrorWithACure) {
  static PoolMap map;
  process_pool().write_map(&map);
  const auto report = audit_maps(map, 0x7ffffffe);
  CHECK_FALSE(report.ok());
  STRCMP_EQUAL("auditing the pool: opening /proc/2147483646/smaps", report.error().doing);
  STRCMP_EQUAL("No such file or directory", report.error().answer);
  CHECK(report.error().cure[0] != '\0');
}
