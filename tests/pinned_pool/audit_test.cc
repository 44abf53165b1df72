#include "pinned_pool/audit.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <string>

#include <signal.h>
#include <sys/mman.h>
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

}  // namespace

// The comparison on crafted text, in the form of /proc/<pid>/smaps.
TEST_GROUP(Auditor) {
  PoolMap map;
  std::string text;

  void setup() override {
    map.segment_count = 2;
    map.segments[0] = {"boot", kFirst, 16 * kMiB, 4096};
    map.segments[1] = {"volume:ram0", kSecond, 64 * kMiB, 2 * kMiB};
  }

  // One mapping of smaps, with the lines that the audit looks at and some that it does not.
  void add(uint64_t begin, uint64_t end, const char* rights, uint64_t offset, uint64_t page_kib,
           const char* name) {
    char lines[512];
    std::snprintf(lines, sizeof lines,
                  "%" PRIx64 "-%" PRIx64 " %s %08" PRIx64 " 00:01 1029      %s\n"
                  "Size:           %8" PRIu64 " kB\n"
                  "KernelPageSize: %8" PRIu64 " kB\n"
                  "MMUPageSize:    %8" PRIu64 " kB\n"
                  "Rss:                   0 kB\n"
                  "VmFlags: rd wr sh mr mw me ms lo sd \n",
                  begin, end, rights, offset, name, (end - begin) / kKiB, page_kib, page_kib);
    text += lines;
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
  void check_finding(const char* finding) {
    Auditor auditor(map);
    for (size_t start = 0; start < text.size();) {
      const size_t end = text.find('\n', start);
      auditor.line(text.substr(start, end - start).c_str());
      start = end + 1;
    }
    const AuditReport report = auditor.finish();
    STRCMP_EQUAL(finding, report.text);
    CHECK(report.ok == (std::string("ok") == finding));
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

TEST(Auditor, PoolThatIsNotMappedIsFound) {
  add_program();
  add_libraries();
  check_finding("boot: 16777216 of 16777216 bytes are not mapped");
}

TEST(Auditor, NoTextAtAllIsNoProof) {
  check_finding("boot: 16777216 of 16777216 bytes are not mapped");
}

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
  add(kFirst + 32 * kMiB, kFirst + 33 * kMiB, "rw-p", 0, 4, "");
  add_volume();
  char finding[128];
  std::snprintf(finding, sizeof finding,
                "0x%" PRIx64 "-0x%" PRIx64 " is mapped in the pool's range and is no segment",
                kFirst + 32 * kMiB, kFirst + 33 * kMiB);
  check_finding(finding);
}

TEST(Auditor, ForeignMappingAcrossTheEdgesOfTheRangeIsFound) {
  add(kPoolBase - 4096, kPoolBase + 4096, "rw-p", 0, 4, "");
  add_volume();
  char finding[128];
  std::snprintf(finding, sizeof finding,
                "0x%" PRIx64 "-0x%" PRIx64 " is mapped in the pool's range and is no segment",
                kPoolBase - 4096, kPoolBase + 4096);
  check_finding(finding);
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
  for (const char* rights : {"r--s", "-w-s", "---s", "rw-p", "rwxs", "r-xs"}) {
    text.clear();
    add_boot();
    add_volume(rights);
    char finding[128];
    std::snprintf(finding, sizeof finding,
                  "volume:ram0: 0x%" PRIx64 "-0x%" PRIx64 " has the rights %s, not rw-s", kSecond,
                  kSecond + 64 * kMiB, rights);
    check_finding(finding);
  }
}

TEST(Auditor, WrongPageSizeIsFound) {
  add_boot();
  add_volume("rw-s", 4);
  check_finding("volume:ram0: has pages of 4 KiB, not of 2 MiB");
}

TEST(Auditor, AnotherFileInItsPlaceIsFound) {
  add(kFirst, kFirst + 4 * kMiB, "rw-s", 0, 4, "/memfd:boot (deleted)");
  add(kFirst + 4 * kMiB, kFirst + 5 * kMiB, "rw-s", 0, 4, "/dev/zero (deleted)");
  add(kFirst + 5 * kMiB, kFirst + 16 * kMiB, "rw-s", 5 * kMiB, 4, "/memfd:boot (deleted)");
  add_volume();
  char finding[160];
  std::snprintf(finding, sizeof finding,
                "boot: 0x%" PRIx64 "-0x%" PRIx64 " maps something else: offset 0x0 of /dev/zero "
                "(deleted)", kFirst + 4 * kMiB, kFirst + 5 * kMiB);
  check_finding(finding);
}

TEST(Auditor, FileOfTheSameNameAtAnotherOffsetIsFound) {
  add(kFirst, kFirst + 16 * kMiB, "rw-s", 4096, 4, "/memfd:boot (deleted)");
  add_volume();
  char finding[160];
  std::snprintf(finding, sizeof finding,
                "boot: 0x%" PRIx64 "-0x%" PRIx64 " maps something else: offset 0x1000 of "
                "/memfd:boot (deleted)", kFirst, kFirst + 16 * kMiB);
  check_finding(finding);
}

TEST(Auditor, FirstFindingIsTheOneThatIsTold) {
  add(kFirst, kFirst + 16 * kMiB, "r--s", 0, 4, "/memfd:boot (deleted)");
  add_volume("rw-p");
  char finding[128];
  std::snprintf(finding, sizeof finding, "boot: 0x%" PRIx64 "-0x%" PRIx64 " has the rights r--s, "
                "not rw-s", kFirst, kFirst + 16 * kMiB);
  check_finding(finding);
}

TEST(Auditor, NonsenseIsNoMapping) {
  add_boot();
  text += "\n-\nzzzz-yyyy rw-s\n" + std::string(3000, '-') + "\nKernelPageSize: 7 kB trailing\n";
  // Page sizes of mappings that are not the pool's.
  add(0x7ffff0000000, 0x7ffff1000000, "rw-s", 0, 2048, "/dev/hugepages/x");
  add_volume();
  check_finding("boot: has pages of 7 KiB, not of 4 KiB");
}

// The real thing, in a process of its own.
namespace {

// Audits this process, or process `pid`; "ok" or the finding.
std::string finding_of(pid_t pid = 0) {
  static PoolMap map;
  process_pool().write_map(&map);
  auto report = audit_maps(map, pid);
  BP_PROBE_CHECK(report.ok());
  return report.value().text;
}

// For probes: the audit must find what `words` say, or nothing.
void check_finding(const char* words, pid_t pid = 0) {
  const std::string finding = finding_of(pid);
  const bool good = std::string("ok") == words ? finding == words
                                               : finding.find(words) != std::string::npos;
  if (!good) test::probe_failed(__FILE__, __LINE__, (words + (" in: " + finding)).c_str());
}

Segment& probe_segment() {
  return *process_pool().create_segment("heap", 8 * kMiB, PageSize::k4KiB, 1).take();
}

// Maps what belongs there.
void mend(const Segment& segment, std::byte* page) {
  void* mapped = mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment.memfd,
                      page - segment.address);
  BP_PROBE_CHECK(mapped == page);
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
  check_finding("maps something else");
  mend(segment, page);

  // The same file, but another page of it.
  BP_PROBE_CHECK(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, segment.memfd,
                      0) == page);
  check_finding("maps something else");
  mend(segment, page);

  std::byte* gap = segment.address + 16 * kMiB;
  BP_PROBE_CHECK(mmap(gap, 4096, PROT_READ, kPrivate, -1, 0) == gap);
  check_finding("is mapped in the pool's range");
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
  // Small pages of shared memory in its place.
  BP_PROBE_CHECK(mmap(segment.address, 2 * kMiB, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == segment.address);
  check_finding("maps something else");
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
  BP_PROBE_CHECK(child_finding == "heap: 8192 of 8388608 bytes are not mapped");
  check_finding("ok", getpid());
}

BP_PROBE(AuditWithManyMappings) {
  // Every second page made a mapping of its own: smaps is longer than any buffer.
  const Segment& segment = probe_segment();
  for (uint64_t at = 0; at < 2 * kMiB; at += 8192) {
    BP_PROBE_CHECK(mprotect(segment.address + at, 4096, PROT_READ) == 0);
  }
  check_finding("has the rights r--s");
  for (uint64_t at = 0; at < 2 * kMiB; at += 16384) {
    BP_PROBE_CHECK(mprotect(segment.address + at, 16384, PROT_READ | PROT_WRITE) == 0);
  }
  check_finding("ok");
}

TEST_GROUP(Audit) {};

TEST(Audit, FindsWhatWasDoneToThePool) { BP_CHECK_PROBE(AuditOfTheRealMaps); }

TEST(Audit, SealedPoolIsOk) { BP_CHECK_PROBE(AuditOfTheSealedPool); }

TEST(Audit, FindsAWrongPageSize) { BP_CHECK_PROBE(AuditOfPageSizes); }

TEST(Audit, WorksOnHugepages) { BP_CHECK_PROBE(AuditOfHugepages); }

TEST(Audit, WorksFromAnotherProcess) { BP_CHECK_PROBE(AuditOfAnotherProcess); }

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
