// The data path's law for single copy by the kernel, between two processes: a copy is one system
// call, and now and then a check that the peer still exists.
#include <sys/mman.h>

#include "platform/clock.h"
#include "tests/support/datapath_law.h"
#include "tests/transport/single_copy/single_copy_rig.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(SingleCopyLaw, SingleCopyRig) {
  static constexpr int kWarmRounds = 20;
  static constexpr int kWatchedRounds = 100;
  static constexpr uint64_t kLookNs = 20 * kNsPerMs;  // long enough for a check of the peer

  // Attaches a peer. Returns the reason if that is impossible, or nullptr.
  const char* why_not_attached() {
    if (why_no_law() != nullptr) return why_no_law();
    if (!open_single_copy(SingleCopyKind::kCma).ok()) {
      return "process_vm_readv is missing here, or forbidden";
    }
    open(SingleCopyKind::kCma);
    if (copy->attach(peer->as_peer(), peer->card(), memory).ok()) return nullptr;
    return "this process may not copy from its child (kernel.yama.ptrace_scope)";
  }
  // `deed` must not use CHECK, because it is watched. It returns whether each copy ended as it
  // should.
  template <typename Deed>
  void keeps_the_law(Deed deed) {
    bool is_right = true;
    for (int i = 0; i < kWarmRounds && is_right; ++i) is_right = deed();
    CHECK(is_right);
    const uint32_t breaches = breaches_in(
        [&] {
          const uint64_t look_ns = monotonic_ns() + kLookNs;
          for (int i = 0; is_right && (i < kWatchedRounds || monotonic_ns() < look_ns); ++i) {
            is_right = deed();
          }
        },
        Permit::kSingleCopy);
    CHECK(is_right);
    LONGS_EQUAL(0, breaches);
  }
  bool ends(const CopyOutcome& outcome, CopyEnd end, uint64_t bytes) noexcept {
    return outcome.end == end && outcome.bytes == bytes;
  }
};

TEST(SingleCopyLaw, ReadsAndWritesByCma) {
  if (const char* why = why_not_attached()) BP_SKIP(why);
  keeps_the_law([&] {
    bool is_right = true;
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4097}, uint64_t{1} << 20}) {
      is_right &= ends(memory.read(local.data(), peer->range(), 1, bytes), CopyEnd::kDone, bytes);
      is_right &= ends(memory.write(local.data(), peer->range(), 1, bytes), CopyEnd::kDone, bytes);
    }
    return is_right;
  });
}

TEST(SingleCopyLaw, RefusalsByCma) {
  if (const char* why = why_not_attached()) BP_SKIP(why);
  peer->run([](CopyPeer::Inside& inside) { munmap(inside.memory + 4096, 4096); });
  keeps_the_law([&] {
    const ExposedRange& range = peer->range();
    ExposedRange to_read = range;
    to_read.is_writable = 0;
    return ends(memory.read(local.data(), range, range.bytes, 1), CopyEnd::kRefused, 0) &&
           ends(memory.write(local.data(), to_read, 0, 8), CopyEnd::kRefused, 0) &&
           ends(memory.read(local.data(), range, 0, 8192), CopyEnd::kRefused, 4096) &&
           ends(memory.write(local.data(), range, 4096, 8), CopyEnd::kRefused, 0);
  });
}

TEST(SingleCopyLaw, APeerThatEndedByCma) {
  if (const char* why = why_not_attached()) BP_SKIP(why);
  peer->end();
  keeps_the_law([&] {
    return ends(memory.read(local.data(), peer->range(), 0, 8), CopyEnd::kGone, 0) &&
           ends(memory.write(local.data(), peer->range(), 0, 8), CopyEnd::kGone, 0);
  });
}
