// Tries every way back, which takes memory from under a registration, on a sealed pool: as a raw
// system call and through libc. One that the runtime reports as stopped must be refused, or change
// nothing. In the end every page of the pool has its earlier content and physical page.
//
// Each trial runs in a fresh process, on that process's own pool, because a seal is final.
#include "pinned_pool/no_way_back.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/seccomp_filter.h"
#include "platform/file.h"
#include "platform/numa.h"
#include "tests/support/death_test.h"
#include "tests/support/hugepages.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"
#include "transport/uring/page_pin.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kSmallPage = 4096;
constexpr int kPageout = 21, kSoftOffline = 101, kGuardInstall = 102;

template <typename Word>
int answer(Word outcome) noexcept {
  return reinterpret_cast<intptr_t>(reinterpret_cast<void*>(outcome)) == -1 ? errno : 0;
}

// The result of a raw system call, and of libc's function: 0 or errno.
#define BP_RAW(...) \
  [](const Segment& segment [[maybe_unused]]) { return answer(syscall(__VA_ARGS__)); }
#define BP_LIBC(...) [](const Segment& segment [[maybe_unused]]) { return answer((__VA_ARGS__)); }

uint64_t page_of(const Segment& segment) noexcept { return page_bytes(segment.page); }

int advise_elsewhere(const Segment& segment, bool is_raw) {
  const Fd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const iovec piece = {segment.address, page_of(segment)};
  return answer(is_raw ? syscall(SYS_process_madvise, self.number(), &piece, 1UL, kPageout, 0)
                       : process_madvise(self.number(), &piece, 1, kPageout, 0));
}

int attach_over(const Segment& segment, bool is_raw) {
  const int id = shmget(IPC_PRIVATE, kSmallPage, IPC_CREAT | 0600);
  const int outcome =
      is_raw ? answer(syscall(SYS_shmat, id, segment.address, SHM_REMAP))
             : answer(reinterpret_cast<intptr_t>(shmat(id, segment.address, SHM_REMAP)));
  shmctl(id, IPC_RMID, nullptr);
  return outcome;
}

// A node other than 0, on which the pools here lie; 0 if there is no other.
int other_node() {
  const NodeSet nodes = memory_nodes();
  int node = kNodeCountMax - 1;
  while (!nodes[static_cast<size_t>(node)]) --node;
  return node;
}

int move_to_other_node(const Segment& segment) {
  void* pages[] = {segment.address};
  const int nodes[] = {other_node()};
  int status[] = {0};
  return answer(syscall(SYS_move_pages, 0, 1UL, pages, nodes, status, MPOL_MF_MOVE));
}

int bind_to_other_node(const Segment& segment) {
  const unsigned long node = 1UL << other_node();
  return answer(
      syscall(SYS_mbind, segment.address, segment.bytes, MPOL_BIND, &node, 64UL, MPOL_MF_MOVE));
}

int soft_offline(const Segment& segment) {
  return answer(syscall(SYS_madvise, segment.address, kSmallPage, kSoftOffline));
}

// Whether a trial may harm the machine: tests/guest/init sets this variable.
bool is_disposable_machine() { return std::getenv("BEDPLATE_DISPOSABLE_MACHINE") != nullptr; }

int compact(const Segment&) {
  const Fd file(open("/proc/sys/vm/compact_memory", O_WRONLY | O_CLOEXEC));
  return file.is_open() ? answer(write(file.number(), "1", 1)) : EPERM;
}

struct Trial {
  const char* way_back;
  int (*raw)(const Segment&);
  int (*libc)(const Segment&);     // nullptr: libc has no such function
  bool costs_the_machine = false;  // its raw call takes a page from the machine for good
};

const Trial kTrials[] = {
    {"munmap", BP_RAW(SYS_munmap, segment.address, page_of(segment)),
     BP_LIBC(munmap(segment.address, page_of(segment)))},
    {"mremap", BP_RAW(SYS_mremap, segment.address, page_of(segment), 2 * page_of(segment), 1),
     BP_LIBC(mremap(segment.address, page_of(segment), 2 * page_of(segment), MREMAP_MAYMOVE))},
    {"mprotect", BP_RAW(SYS_mprotect, segment.address, page_of(segment), PROT_READ),
     BP_LIBC(mprotect(segment.address, page_of(segment), PROT_READ))},
    {"mmap MAP_FIXED",
     BP_RAW(SYS_mmap, segment.address, page_of(segment), PROT_READ,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L),
     BP_LIBC(mmap(segment.address, page_of(segment), PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0))},
    {"remap_file_pages", BP_RAW(SYS_remap_file_pages, segment.address, page_of(segment), 0, 1UL, 0),
     BP_LIBC(remap_file_pages(segment.address, page_of(segment), 0, 1, 0))},
    {"shmat SHM_REMAP", [](const Segment& segment) { return attach_over(segment, true); },
     [](const Segment& segment) { return attach_over(segment, false); }},
    {"shmdt", BP_RAW(SYS_shmdt, segment.address), BP_LIBC(shmdt(segment.address))},
    // brk(0) returns the present break. Even a moved break would not touch the pool.
    {"brk", [](const Segment&) { return answer(syscall(SYS_brk, 0)); }, nullptr},
    {"ftruncate", BP_RAW(SYS_ftruncate, segment.memfd, page_of(segment)),
     BP_LIBC(ftruncate(segment.memfd, static_cast<off_t>(page_of(segment))))},
    {"fallocate PUNCH_HOLE",
     BP_RAW(SYS_fallocate, segment.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0L,
            page_of(segment)),
     BP_LIBC(fallocate(segment.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                       static_cast<off_t>(page_of(segment))))},
    {"madvise REMOVE", BP_RAW(SYS_madvise, segment.address, page_of(segment), MADV_REMOVE),
     BP_LIBC(madvise(segment.address, page_of(segment), MADV_REMOVE))},
    {"madvise DONTNEED", BP_RAW(SYS_madvise, segment.address, page_of(segment), MADV_DONTNEED),
     BP_LIBC(madvise(segment.address, page_of(segment), MADV_DONTNEED))},
    {"madvise FREE", BP_RAW(SYS_madvise, segment.address, page_of(segment), MADV_FREE),
     BP_LIBC(madvise(segment.address, page_of(segment), MADV_FREE))},
    {"madvise PAGEOUT", BP_RAW(SYS_madvise, segment.address, page_of(segment), kPageout),
     BP_LIBC(madvise(segment.address, page_of(segment), kPageout))},
    {"process_madvise", [](const Segment& segment) { return advise_elsewhere(segment, true); },
     [](const Segment& segment) { return advise_elsewhere(segment, false); }},
    {"munlock, then madvise PAGEOUT",
     [](const Segment& segment) {
       syscall(SYS_munlock, segment.address, segment.bytes);
       const int outcome = answer(syscall(SYS_madvise, segment.address, segment.bytes, kPageout));
       syscall(SYS_mlock, segment.address, segment.bytes);
       return outcome;
     },
     [](const Segment& segment) {
       const int outcome = answer(munlock(segment.address, segment.bytes));
       return outcome == 0 ? outcome : answer(munlockall());
     }},
    {"munlock, then madvise GUARD_INSTALL",
     [](const Segment& segment) {
       syscall(SYS_munlock, segment.address, segment.bytes);
       const int outcome =
           answer(syscall(SYS_madvise, segment.address, page_of(segment), kGuardInstall));
       syscall(SYS_mlock, segment.address, segment.bytes);
       return outcome;
     },
     BP_LIBC(madvise(segment.address, page_of(segment), kGuardInstall))},
    {"move_pages", &move_to_other_node, nullptr},
    {"mbind MOVE", &bind_to_other_node, nullptr},
    {"madvise SOFT_OFFLINE", &soft_offline,
     BP_LIBC(madvise(segment.address, kSmallPage, kSoftOffline)), true},
    {"compaction", &compact, nullptr},
};

// The physical page of each small page; zeros if the process may not read them.
std::vector<uint64_t> physical_pages(const Segment& segment) {
  std::vector<uint64_t> entries(segment.bytes / kSmallPage);
  const Fd pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto at = reinterpret_cast<uintptr_t>(segment.address) / kSmallPage * sizeof(uint64_t);
  const size_t bytes = entries.size() * sizeof(uint64_t);
  BP_PROBE_CHECK(pread(pagemap.number(), entries.data(), bytes, static_cast<off_t>(at)) ==
                 static_cast<ssize_t>(bytes));
  constexpr uint64_t kFrame = (uint64_t{1} << 55) - 1;
  for (uint64_t& entry : entries) entry &= kFrame;
  return entries;
}

std::byte content_of(size_t page) { return static_cast<std::byte>(page * 37 + 5); }

void fill(const Segment& segment) {
  for (size_t i = 0; i < segment.bytes / kSmallPage; ++i) {
    std::memset(segment.address + i * kSmallPage, static_cast<int>(content_of(i)), kSmallPage);
  }
}

bool is_filled(const Segment& segment) {
  for (uint64_t at = 0; at < segment.bytes; ++at) {
    if (segment.address[at] != content_of(at / kSmallPage)) return false;
  }
  return true;
}

[[noreturn]] void fail(const Trial& trial, const char* how, const Segment& segment,
                       const char* what) {
  const std::string text =
      std::string(how) + " " + trial.way_back + " of " + segment.owner.text + ": " + what;
  test::probe_failed(__FILE__, __LINE__, text.c_str());
}

// Tries all ways back on the segments, which `stoppers` protect.
void try_all(const std::vector<const Segment*>& segments, uint32_t stoppers) {
  for (const Segment* segment : segments) {
    fill(*segment);
    const std::vector<uint64_t> before = physical_pages(*segment);
    for (const Trial& trial : kTrials) {
      const auto way_back = std::find_if(
          all_ways_back().begin(), all_ways_back().end(),
          [&](const WayBack& known) { return std::string_view(known.name) == trial.way_back; });
      BP_PROBE_CHECK(way_back != all_ways_back().end());
      const WayBackState state = state_of(*way_back, stoppers);
      const auto attempt = [&](int (*call)(const Segment&), const char* how) {
        const int said = call(*segment);
        if (!is_filled(*segment)) fail(trial, how, *segment, "the content is gone");
        if (physical_pages(*segment) != before) fail(trial, how, *segment, "a page has moved");
        return said;
      };
      const bool is_affordable = !trial.costs_the_machine || is_disposable_machine();
      if (is_affordable && state == WayBackState::kStopped) attempt(trial.raw, "raw");
      if (trial.libc == nullptr || state == WayBackState::kOpen) continue;
      const int said = attempt(trial.libc, "libc");
      const bool is_ours = (stoppers & way_back->stoppers & kLibcCallStops) != 0;
      if (is_ours && said != EPERM) fail(trial, "libc", *segment, "it was not refused");
    }
  }
}

// A pool with segment 0, and with another segment of each available page size.
std::vector<const Segment*> make_segments() {
  PinnedPool& pool = process_pool();
  if (pool.segment_count() == 0) {
    BP_PROBE_CHECK(pool.create_segment("boot", 8 * kMiB, PageSize::k4KiB, 1).ok());
  }
  std::vector<const Segment*> segments = {
      pool.create_segment("small", 4 * kMiB, PageSize::k4KiB, 1, 0).take()};
  if (hugepage_counts(PageSize::k2MiB, 0).available_count >= 2) {
    segments.push_back(pool.create_segment("huge", 4 * kMiB, PageSize::k2MiB, 1, 0).take());
  }
  for (const Segment* segment : segments) fill(*segment);
  return segments;
}

// The same segments, pinned by a device, in a sealed pool.
std::vector<const Segment*> make_pool(PagePin& pin) {
  PinnedPool& pool = process_pool();
  const auto segments = make_segments();
  if (!pin.create(pool).ok()) test::probe_skipped("io_uring is not available here");
  pool.seal();
  return segments;
}

}  // namespace

TEST_GROUP(NoWayBack){};

TEST(NoWayBack, EveryWayBackIsTried) {
  LONGS_EQUAL(std::size(kTrials), all_ways_back().size());
  for (const WayBack& way_back : all_ways_back()) {
    CHECK_TEXT(std::any_of(std::begin(kTrials), std::end(kTrials),
                           [&](const Trial& trial) {
                             return std::string_view(trial.way_back) == way_back.name;
                           }),
               way_back.name);
  }
}

BP_PROBE(SealedPoolKeepsEveryPage) {
  PagePin pin;
  const auto segments = make_pool(pin);
  try_all(segments, process_pool().stoppers());
}
TEST(NoWayBack, SealedPoolKeepsEveryPage) {
  BP_SKIP_WITHOUT_MLOCK();
  const test::LentHugepages pages(2);
  BP_CHECK_PROBE(SealedPoolKeepsEveryPage);
}

void put_seccomp_in_force() {
  BP_PROBE_CHECK(install_seccomp_filter(kPoolBase, kPoolBase + kPoolSpanBytes).ok());
  process_pool().add_stoppers(kSeccompStops);
}

BP_PROBE(SeccompStopsRawCallsToo) {
  PagePin pin;
  const auto segments = make_pool(pin);
  put_seccomp_in_force();
  char open[256];
  BP_PROBE_CHECK(
      list_ways_back(process_pool().stoppers(), WayBackState::kOpen, open, sizeof open) == 0);
  BP_PROBE_CHECK(list_ways_back(process_pool().stoppers(), WayBackState::kStoppedInLibc, open,
                                sizeof open) == 0);
  try_all(segments, process_pool().stoppers());
}
TEST(NoWayBack, SeccompStopsRawCallsToo) {
  BP_SKIP_WITHOUT_MLOCK();
  const test::LentHugepages pages(2);
  BP_CHECK_PROBE(SeccompStopsRawCallsToo);
}

// Without a device, only the filter keeps the pages in place.
BP_PROBE(SeccompAloneHoldsPages) {
  const auto segments = make_segments();
  process_pool().seal();
  put_seccomp_in_force();
  try_all(segments, process_pool().stoppers());
}
TEST(NoWayBack, SeccompAloneHoldsPages) {
  BP_SKIP_WITHOUT_MLOCK();
  if (!is_disposable_machine()) BP_SKIP("the kernel may move what no device holds (tests/guest)");
  const test::LentHugepages pages(2);
  BP_CHECK_PROBE(SeccompAloneHoldsPages);
}

// Proves that the trials are real: without a device and a filter, each of these three moves a
// sealed page.
BP_PROBE(PagesThatNothingHoldsMove) {
  const auto segments = make_segments();
  BP_PROBE_CHECK(segments.size() == 2);
  process_pool().seal();
  for (const Segment* segment : segments) {
    for (const Trial& trial : kTrials) {
      if (trial.raw != &move_to_other_node && trial.raw != &bind_to_other_node &&
          trial.raw != &soft_offline) {
        continue;
      }
      const std::vector<uint64_t> before = physical_pages(*segment);
      const int said = trial.raw(*segment);
      if (said != 0) fail(trial, "raw", *segment, strerrordesc_np(said));
      if (physical_pages(*segment) == before) fail(trial, "raw", *segment, "nothing has moved");
      BP_PROBE_CHECK(is_filled(*segment));
    }
  }
}
TEST(NoWayBack, PagesThatNothingHoldsMove) {
  BP_SKIP_WITHOUT_MLOCK();
  if (!is_disposable_machine() || memory_nodes().count() == 1) {
    BP_SKIP("it takes two NUMA nodes and costs a page of memory (tests/guest)");
  }
  BP_CHECK_PROBE(PagesThatNothingHoldsMove);
}

// Memory that only the filter protects: calls at the edges of the range, and calls that reach into
// it.
BP_PROBE(SeccompAloneStopsWhatItJudges) {
  constexpr uint64_t kBytes = 16 * kSmallPage;
  auto* begin = reinterpret_cast<std::byte*>(test::kTestPoolBaseInRange);
  const auto map = [](std::byte* at, uint64_t bytes) {
    BP_PROBE_CHECK(mmap(at, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
  };
  map(begin - kBytes, 3 * kBytes);
  const auto first = reinterpret_cast<uintptr_t>(begin);
  BP_PROBE_CHECK(install_seccomp_filter(first, first + kBytes).ok());
  const auto unmap = [](const std::byte* at, uint64_t bytes) {
    return answer(syscall(SYS_munmap, at, bytes));
  };
  BP_PROBE_CHECK(unmap(begin, kSmallPage) == EPERM);
  BP_PROBE_CHECK(unmap(begin, kBytes) == EPERM);
  BP_PROBE_CHECK(unmap(begin + kBytes - kSmallPage, kSmallPage) == EPERM);
  BP_PROBE_CHECK(unmap(begin - kSmallPage, 2 * kSmallPage) == EPERM);
  BP_PROBE_CHECK(unmap(begin - kSmallPage, 3 * kBytes) == EPERM);
  BP_PROBE_CHECK(unmap(begin - kSmallPage, uint64_t{1} << 40) == EPERM);
  BP_PROBE_CHECK(unmap(begin - (first & 0xffff'ffff) - kSmallPage,
                       (first & 0xffff'ffff) + 2 * kSmallPage) == EPERM);
  BP_PROBE_CHECK(unmap(begin + kBytes, kSmallPage) == 0);
  BP_PROBE_CHECK(unmap(begin - kSmallPage, kSmallPage) == 0);
  BP_PROBE_CHECK(answer(syscall(SYS_mprotect, begin, kSmallPage, PROT_READ)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_madvise, begin, kSmallPage, MADV_DONTNEED)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_madvise, begin, kSmallPage, kGuardInstall)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_madvise, begin, kSmallPage, MADV_WILLNEED)) == 0);
  BP_PROBE_CHECK(answer(syscall(SYS_madvise, begin, kSmallPage, MADV_DONTDUMP)) == 0);
  BP_PROBE_CHECK(answer(syscall(SYS_munlock, begin, kSmallPage)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_mremap, begin, kSmallPage, 2 * kSmallPage, 1)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_mremap, begin - kBytes, kSmallPage, kSmallPage,
                                MREMAP_MAYMOVE | MREMAP_FIXED, begin)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_mremap, begin - kBytes, kSmallPage, 2 * kSmallPage,
                                MREMAP_MAYMOVE | MREMAP_FIXED, begin - kSmallPage)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_mmap, begin, kSmallPage, PROT_READ,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L)) == EPERM);
  BP_PROBE_CHECK(answer(syscall(SYS_mmap, begin, kSmallPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
                                -1, 0L)) == 0);  // a hint only
  BP_PROBE_CHECK(answer(syscall(SYS_munlockall)) == EPERM);
  Segment at_begin;
  at_begin.address = begin;
  BP_PROBE_CHECK(move_to_other_node(at_begin) == EPERM);
  BP_PROBE_CHECK(answer(syscall(0x4000'0000 | SYS_munmap, begin - kBytes, kSmallPage)) == EPERM);
  BP_PROBE_CHECK(unmap(begin - kBytes, kSmallPage) == 0);
}
TEST(NoWayBack, SeccompAloneStopsWhatItJudges) {
  BP_SKIP_UNDER_SANITIZER();  // its run-time library unmaps and advises memory anywhere
  BP_CHECK_PROBE(SeccompAloneStopsWhatItJudges);
}

// A process that has only the file can read it, and do nothing else.
BP_PROBE(AnotherProcessCanOnlyRead) {
  PagePin pin;
  const auto segments = make_pool(pin);
  for (const Segment* segment : segments) {
    const std::string path =
        "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(segment->memfd);
    const pid_t child = fork();
    if (child == 0) {
      const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      const auto bytes = static_cast<off_t>(segment->bytes);
      const int rw = PROT_READ | PROT_WRITE;
      bool is_good = fd >= 0;
      is_good &= answer(syscall(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0L,
                                bytes)) == EPERM;
      is_good &= answer(syscall(SYS_ftruncate, fd, 0L)) == EPERM;
      is_good &= answer(syscall(SYS_mmap, nullptr, bytes, rw, MAP_SHARED, fd, 0L)) == EPERM;
      is_good &= answer(syscall(SYS_pwrite64, fd, "x", 1UL, 0L)) != 0;
      const long at = syscall(SYS_mmap, nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0L);
      is_good &= at != -1 && *reinterpret_cast<std::byte*>(at) == content_of(0);
      is_good &= answer(syscall(SYS_mprotect, at, bytes, rw)) != 0;
      is_good &= answer(syscall(SYS_madvise, at, bytes, MADV_REMOVE)) != 0;
      _exit(is_good ? 0 : 1);
    }
    int status = -1;
    BP_PROBE_CHECK(waitpid(child, &status, 0) == child);
    BP_PROBE_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    BP_PROBE_CHECK(is_filled(*segment));
  }
}
TEST(NoWayBack, AnotherProcessCanOnlyRead) {
  BP_SKIP_WITHOUT_MLOCK();
  const test::LentHugepages pages(2);
  BP_CHECK_PROBE(AnotherProcessCanOnlyRead);
}

// ---- The table ----

TEST(NoWayBack, OneStopperIsEnough) {
  const WayBack way_back = {"w", kMappingSealStops | kLibcCallStops};
  CHECK(state_of(way_back, 0) == WayBackState::kOpen);
  CHECK(state_of(way_back, kPinStops) == WayBackState::kOpen);
  CHECK(state_of(way_back, kLibcCallStops) == WayBackState::kStoppedInLibc);
  CHECK(state_of(way_back, kMappingSealStops) == WayBackState::kStopped);
  CHECK(state_of({"w", kKernelStops}, 0) == WayBackState::kStopped);
}

TEST(NoWayBack, ListsNamesAndCutsThemOff) {
  char text[512];
  const uint32_t all = kSizeSealStops | kWriteSealStops | kMappingSealStops | kPinStops;
  LONGS_EQUAL(1, list_ways_back(all, WayBackState::kOpen, text, sizeof text));
  STRCMP_EQUAL("munlock, then madvise GUARD_INSTALL", text);
  LONGS_EQUAL(0, list_ways_back(all | kSeccompStops, WayBackState::kOpen, text, sizeof text));
  STRCMP_EQUAL("", text);
  char small[12];
  CHECK(list_ways_back(0, WayBackState::kOpen, small, sizeof small) > 10);
  STRCMP_EQUAL("munmap, mre", small);
}
