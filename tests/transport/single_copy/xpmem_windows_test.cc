// The windows of an XpmemAccess, without the module: this process answers the module's calls, and
// plays a peer with the same memory at the same addresses.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "transport/single_copy/guarded_copy_datapath.h"
#include "transport/single_copy/xpmem.h"
#include "transport/single_copy/xpmem_abi.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kWindowBytes = XpmemAccess::kWindowBytes;
constexpr int64_t kPermit = 3;
constexpr uint64_t kKey = 5;

// The module's record of windows.
struct Attached {
  uint64_t windows[XpmemAccess::kWindowCount] = {};  // by their beginning; 0: none
  unsigned attached_count = 0;
  unsigned wrong_count = 0;  // attached twice, detached without being attached, or too many
  bool is_refused = false;
  bool is_released = false;

  void replace(uint64_t begin, uint64_t by) noexcept {
    auto* window = std::find(std::begin(windows), std::end(windows), begin);
    if (window == std::end(windows)) {
      ++wrong_count;
    } else {
      *window = by;
    }
  }
} module_state;

long answer(const uint64_t* arguments) {
  if (arguments[1] == xpmem::kAttach) {
    auto& attach = *reinterpret_cast<xpmem::Attach*>(arguments[2]);
    const auto begin = static_cast<uint64_t>(attach.offset);
    if (module_state.is_refused) return -ENOMEM;
    auto& windows = module_state.windows;
    const bool is_there = std::find(windows, std::end(windows), begin) != std::end(windows);
    if (is_there || attach.permit != kPermit || begin % kWindowBytes != 0) {
      ++module_state.wrong_count;
    }
    ++module_state.attached_count;
    module_state.replace(0, begin);
    attach.address = begin;
    return 0;
  }
  if (arguments[1] == xpmem::kDetach) {
    module_state.replace(reinterpret_cast<xpmem::Detach*>(arguments[2])->address, 0);
    return 0;
  }
  module_state.is_released = arguments[1] == xpmem::kRelease;
  return 0;
}

// The number of pieces of the peer's memory, more than there are windows. The first piece begins at
// a window's beginning.
constexpr uint64_t kPieceCount = XpmemAccess::kWindowCount + 2;

std::byte* take_pieces() noexcept {
  void* taken = mmap(nullptr, (kPieceCount + 1) * kWindowBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BP_PROBE_CHECK(taken != MAP_FAILED);
  const auto address = reinterpret_cast<uint64_t>(taken);
  return reinterpret_cast<std::byte*>((address + kWindowBytes - 1) / kWindowBytes * kWindowBytes);
}

bool is_done(const CopyOutcome& outcome, uint64_t bytes) noexcept {
  return outcome.end == CopyEnd::kDone && outcome.bytes == bytes;
}

}  // namespace

TEST_GROUP(XpmemWindows){};

BP_PROBE(xpmem_windows) {
  BP_PROBE_CHECK(install_copy_guard().ok());
  BP_PROBE_CHECK(test::answer_calls(SYS_ioctl, &answer));
  std::byte* const pieces = take_pieces();
  const ExposedRange range = {reinterpret_cast<uint64_t>(pieces), kPieceCount * kWindowBytes, kKey,
                              1};
  const Fd own(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  {
    XpmemAccess access(-1, own.number(), kKey, kPermit);
    std::byte local[16] = {};
    for (uint64_t piece = 1; piece < kPieceCount; ++piece) {
      const uint64_t offset = piece * kWindowBytes - 8;  // half in this piece, half in the next
      std::memset(local, static_cast<int>(piece), sizeof local);
      BP_PROBE_CHECK(is_done(access.write(local, range, offset, sizeof local), sizeof local));
      BP_PROBE_CHECK(std::memcmp(pieces + offset, local, sizeof local) == 0);
      std::memset(pieces + offset, 0x55, sizeof local);
      BP_PROBE_CHECK(is_done(access.read(local, range, offset, sizeof local), sizeof local));
      BP_PROBE_CHECK(std::memcmp(pieces + offset, local, sizeof local) == 0);
      BP_PROBE_CHECK(access.is_valid());
    }
    BP_PROBE_CHECK(module_state.attached_count == kPieceCount);   // each piece once
    BP_PROBE_CHECK(is_done(access.read(local, range, 0, 1), 1));  // the first window was detached
    BP_PROBE_CHECK(module_state.attached_count == kPieceCount + 1);
    // The second window was detached as well, and can no longer be attached. The first one is
    // attached.
    module_state.is_refused = true;
    const CopyOutcome part = access.read(local, range, kWindowBytes - 8, sizeof local);
    BP_PROBE_CHECK(part.end == CopyEnd::kRefused && part.bytes == 8);
    BP_PROBE_CHECK(access.is_valid());
  }
  BP_PROBE_CHECK(module_state.wrong_count == 0 && module_state.is_released);
  for (const uint64_t window : module_state.windows) BP_PROBE_CHECK(window == 0);
}

TEST(XpmemWindows, EachPieceHasOneAndTheOldestIsGivenUp) { BP_CHECK_PROBE(xpmem_windows); }
