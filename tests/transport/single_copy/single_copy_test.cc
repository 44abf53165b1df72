// Copying between processes by each kind: every length, memory that changes, and refusals. A kind
// that needs a kernel module runs if the module is loaded (make check-image EXTRA_MODULES=...).
#include "transport/single_copy/single_copy.h"

#include <cstring>

#include <linux/sched.h>
#include <sys/syscall.h>

#include "platform/clock.h"
#include "tests/support/patience.h"
#include "tests/transport/single_copy/single_copy_rig.h"

using namespace bedplate;
using test::CopyPeer;
using test::pattern;
using test::SingleCopyRig;
using test::text_of;

namespace {

constexpr uint64_t kPageBytes = 4096;

}  // namespace

TEST_GROUP_BASE(SingleCopy, SingleCopyRig){};

// ---- Copies ----

TEST_EACH_KIND(SingleCopy, ReadsEveryLength) {
  t.attach(kind);
  const uint64_t lengths[] = {1, 2, 63, 64, 65, 4095, 4096, 4097, 65'539, 1u << 20, 4u << 20};
  for (const uint64_t bytes : lengths) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, kPageBytes - 1}) {
      t.check_read(offset, bytes, 1);
    }
  }
}

TEST_EACH_KIND(SingleCopy, WritesEveryLength) {
  t.attach(kind);
  uint64_t seed = 1;
  const uint64_t lengths[] = {1, 2, 63, 64, 65, 4095, 4096, 4097, 65'539, 1u << 20, 4u << 20};
  for (const uint64_t bytes : lengths) {
    // Writes the pattern of another seed. The bytes on both sides stay unchanged.
    const uint64_t offset = kPageBytes - 1;
    t.check_read(0, offset + bytes + 1, 1);
    seed += 1;
    std::vector<std::byte> sent(bytes);
    for (uint64_t i = 0; i < bytes; ++i) sent[i] = pattern(offset + i, seed);
    t.check_outcome(CopyEnd::kDone, bytes,
                    t.memory.write(sent.data(), t.peer->range(), offset, bytes));
    t.check_read(offset, bytes, seed);
    std::byte before{};
    std::byte behind{};
    t.memory.read(&before, t.peer->range(), offset - 1, 1);
    t.memory.read(&behind, t.peer->range(), offset + bytes, 1);
    CHECK(before == pattern(offset - 1, 1) && behind == pattern(offset + bytes, 1));
    t.peer->run([](CopyPeer::Inside& inside) {
      for (uint64_t i = 0; i < CopyPeer::kBytes; ++i) inside.memory[i] = pattern(i, 1);
    });
  }
}

TEST_EACH_KIND(SingleCopy, SeesWhatThePeerWritesLater) {
  t.attach(kind);
  t.check_read(0, 64 << 10, 1);
  t.peer->run([](CopyPeer::Inside& inside) {
    for (uint64_t i = 0; i < CopyPeer::kBytes; ++i) inside.memory[i] = pattern(i, 2);
  });
  t.check_read(0, 64 << 10, 2);
}

TEST_EACH_KIND(SingleCopy, ReadsPagesThatWereNeverTouched) {
  t.attach(kind);
  t.peer->run([](CopyPeer::Inside& inside) {
    void* fresh =
        mmap(nullptr, 16 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto range = inside.copy->expose(fresh, 16 * kPageBytes, true);
    if (!range.ok()) _exit(1);
    inside.range = range.take();
  });
  t.local[100] = std::byte{1};
  t.check_outcome(CopyEnd::kDone, 16 * kPageBytes,
                  t.memory.read(t.local.data(), t.peer->range(), 0, 16 * kPageBytes));
  CHECK(t.local[100] == std::byte{0});
}

// More ranges than one peer has windows (xpmem), far from one another, in turn and repeatedly.
TEST_EACH_KIND(SingleCopy, ReachesFarApartRanges) {
  t.attach(kind);
  constexpr unsigned kRanges = 12;
  ExposedRange ranges[kRanges];
  for (ExposedRange& range : ranges) {
    t.peer->run([](CopyPeer::Inside& inside) {
      void* block = mmap(nullptr, 64u << 20, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      auto* const bytes = static_cast<std::byte*>(block) + (5u << 20);
      std::memcpy(bytes, &bytes, sizeof(void*));
      auto exposed = inside.copy->expose(bytes, sizeof bytes, false);
      if (!exposed.ok()) _exit(1);
      inside.range = exposed.take();
    });
    range = t.peer->range();
  }
  for (unsigned i = 0; i < 3 * kRanges; ++i) {
    const ExposedRange& range = ranges[i * 7 % kRanges];
    uint64_t seen = 0;
    t.check_outcome(CopyEnd::kDone, 8, t.memory.read(&seen, range, 0, 8));
    CHECK_EQUAL(range.address, seen);
  }
}

TEST_EACH_KIND(SingleCopy, ReadsTheLastPageOfAllAddresses) {
  t.attach(kind);
  t.peer->run([](CopyPeer::Inside& inside) {
    void* const last = reinterpret_cast<void*>((uint64_t{1} << 47) - 2 * kPageBytes);
    void* page = mmap(last, kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (page != last) _exit(1);
    for (uint64_t i = 0; i < kPageBytes; ++i) static_cast<std::byte*>(page)[i] = pattern(i, 5);
    auto range = inside.copy->expose(page, kPageBytes, true);
    if (!range.ok()) _exit(1);
    inside.range = range.take();
  });
  t.check_read(0, kPageBytes, 5);
}

// Replaces pages at the same address. The copy must see the new pages, and no remembered ones.
void check_replaced(SingleCopyRig& t, CopyPeer::Command replace) {
  t.check_read(0, 2 * kPageBytes, 1);
  t.peer->run(replace);
  t.check_read(0, 2 * kPageBytes, 3);
}
void check_replaced_pages(SingleCopyRig& t, SingleCopyKind kind) {
  t.attach(kind);
  check_replaced(t, [](CopyPeer::Inside& inside) {
    munmap(inside.memory, 2 * kPageBytes);
    mmap(inside.memory, 2 * kPageBytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (uint64_t i = 0; i < 2 * kPageBytes; ++i) inside.memory[i] = pattern(i, 3);
  });
}
void check_copied_on_write(SingleCopyRig& t, SingleCopyKind kind) {
  t.attach(kind);
  check_replaced(t, [](CopyPeer::Inside& inside) {
    const pid_t child = fork();  // from here on the pages are copied when they are written
    if (child == 0) {
      pause();
      _exit(0);
    }
    for (uint64_t i = 0; i < 2 * kPageBytes; ++i) inside.memory[i] = pattern(i, 3);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  });
}
// Not for knem, which holds the pages that a region had when it was declared.
TEST(SingleCopy, SeesReplacedPagesXpmem) { each(SingleCopyKind::kXpmem, &check_replaced_pages); }
TEST(SingleCopy, SeesReplacedPagesCma) { each(SingleCopyKind::kCma, &check_replaced_pages); }
TEST(SingleCopy, SeesPagesCopiedOnWriteXpmem) {
  each(SingleCopyKind::kXpmem, &check_copied_on_write);
}
TEST(SingleCopy, SeesPagesCopiedOnWriteCma) { each(SingleCopyKind::kCma, &check_copied_on_write); }

// ---- Refusals ----

TEST_EACH_KIND(SingleCopy, RefusesWhatIsOutsideTheRange) {
  t.attach(kind);
  const ExposedRange& range = t.peer->range();
  t.check_refused(t.memory.read(t.local.data(), range, range.bytes, 1));
  t.check_refused(t.memory.read(t.local.data(), range, 1, range.bytes));
  t.check_refused(t.memory.read(t.local.data(), range, UINT64_MAX, 2));
  t.check_refused(t.memory.read(t.local.data(), range, 2, UINT64_MAX));
  ExposedRange endless = range;
  endless.bytes = UINT64_MAX;
  t.check_refused(t.memory.read(t.local.data(), endless, 0, 1));
  t.check_outcome(CopyEnd::kDone, 0, t.memory.read(t.local.data(), range, range.bytes, 0));
}

TEST_EACH_KIND(SingleCopy, RefusesToWriteWhatIsExposedForReading) {
  t.attach(kind);
  t.peer->run([](CopyPeer::Inside& inside) {
    auto range = inside.copy->expose(inside.memory, kPageBytes, false);
    if (!range.ok()) _exit(1);
    inside.range = range.take();
  });
  t.check_refused(t.memory.write(t.local.data(), t.peer->range(), 0, 8));
  t.check_read(0, kPageBytes, 1);
}

TEST_EACH_KIND(SingleCopy, RefusesWhatIsNotMapped) {
  if (kind == SingleCopyKind::kKnem) {
    t.open(kind);
    const auto exposed = t.copy->expose(reinterpret_cast<void*>(kPageBytes), 8, false);
    CHECK(!exposed.ok());
    STRCMP_CONTAINS("map all of it", text_of(exposed.error()).c_str());
    return;
  }
  t.attach(kind);
  // Unmaps the second page, after it was read. The bytes before the hole are still copied.
  t.check_read(0, 4 * kPageBytes, 1);
  t.peer->run([](CopyPeer::Inside& inside) { munmap(inside.memory + kPageBytes, kPageBytes); });
  t.check_refused(t.memory.read(t.local.data(), t.peer->range(), kPageBytes, 8));
  t.check_refused(t.memory.write(t.local.data(), t.peer->range(), kPageBytes + 8, 8));
  t.check_outcome(CopyEnd::kRefused, kPageBytes - 3,
                  t.memory.read(t.local.data(), t.peer->range(), 3, 3 * kPageBytes));
  t.check_read(2 * kPageBytes, kPageBytes, 1);
  for (const uint64_t address : {uint64_t{0}, uint64_t{1} << 46, (uint64_t{1} << 47) - 8,
                                 uint64_t{1} << 47, ~uint64_t{0} - 64}) {
    ExposedRange nowhere = t.peer->range();
    nowhere.address = address;
    nowhere.bytes = 32;
    t.check_refused(t.memory.read(t.local.data(), nowhere, 0, 32));
    t.check_refused(t.memory.write(t.local.data(), nowhere, 0, 32));
  }
}

// Not for xpmem, which writes to such pages (docs/single_copy.md), nor for knem, which declares no
// such region.
TEST(SingleCopy, RefusesToWriteToReadOnlyPagesCma) {
  attach(SingleCopyKind::kCma);
  peer->run([](CopyPeer::Inside& inside) {
    mprotect(inside.memory + kPageBytes, kPageBytes, PROT_READ);
  });
  check_refused(memory.write(local.data(), peer->range(), kPageBytes, 8));
  check_outcome(CopyEnd::kRefused, kPageBytes,
                memory.write(local.data(), peer->range(), 0, 2 * kPageBytes));
  std::fill_n(local.begin(), 8, std::byte{0xee});
  check_outcome(CopyEnd::kDone, 8, memory.read(local.data(), peer->range(), kPageBytes, 8));
  CHECK(local[0] == pattern(kPageBytes, 1));
}

TEST_EACH_KIND(SingleCopy, RefusesAKeyThatIsNotThePeers) {
  if (kind == SingleCopyKind::kCma) return;  // cma has no keys
  t.attach(kind);
  ExposedRange foreign = t.peer->range();
  foreign.key ^= 1u << 20;
  t.check_refused(t.memory.read(t.local.data(), foreign, 0, 8));
}

TEST(SingleCopy, RefusesARangeThatWasWithdrawnKnem) {
  each(SingleCopyKind::kKnem, [](SingleCopyRig& t, SingleCopyKind kind) {
    t.attach(kind);
    t.check_read(0, 8, 1);
    t.peer->run([](CopyPeer::Inside& inside) { inside.copy->withdraw(inside.range); });
    t.check_refused(t.memory.read(t.local.data(), t.peer->range(), 0, 8));
  });
}

TEST_EACH_KIND(SingleCopy, APeerThatEndedIsGone) {
  t.attach(kind);
  t.check_read(0, 2 * kPageBytes, 1);
  const bool is_reaped[] = {false, true};
  for (const bool reaped : is_reaped) {
    t.peer->end(reaped);
    // Memory exposed to knem lives on for a moment: knem holds its pages.
    const auto outcome = t.memory.read(t.local.data(), t.peer->range(), 0, 2 * kPageBytes);
    if (kind != SingleCopyKind::kKnem) t.check_outcome(CopyEnd::kGone, 0, outcome);
    const auto written = t.memory.write(t.local.data(), t.peer->range(), 0, 8);
    if (kind != SingleCopyKind::kKnem) t.check_outcome(CopyEnd::kGone, 0, written);
  }
}

// The kernel reuses process ids. Here another process gets the id at once, with other memory at the
// same address.
TEST(SingleCopy, DoesNotTakeTheNextProcessOfThatIdForThePeerCma) {
  attach(SingleCopyKind::kCma);
  const pid_t pid = peer->as_peer().pid;
  peer->end();
  clone_args arguments = {};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<uint64_t>(&pid);
  arguments.set_tid_size = 1;
  const long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child == 0) {
    for (;;) pause();
  }
  if (child < 0) BP_SKIP("no process can be given an id that was used (CAP_CHECKPOINT_RESTORE)");
  CopyOutcome outcome;
  test::eventually([&] {
    outcome = memory.write(local.data(), peer->range(), 0, 8);
    return outcome.end != CopyEnd::kDone;
  });
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  check_outcome(CopyEnd::kGone, 0, outcome);
}
