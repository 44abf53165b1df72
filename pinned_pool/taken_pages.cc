#include "pinned_pool/taken_pages.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/memfd.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace bedplate {
namespace {

constexpr uint64_t kBlockBytes = 512;  // the unit of st_blocks

}  // namespace

int take_pages(std::span<std::byte> memory) noexcept {
  int outcome = 0;
  do {
    outcome = madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (outcome == EINTR);
  return outcome;
}

bool has_holes(const Segment& segment) noexcept {
  struct stat status = {};
  return fstat(segment.memfd, &status) != 0 ||
         static_cast<uint64_t>(status.st_blocks) * kBlockBytes < segment.bytes;
}

Result<void> PageWiper::create() noexcept {
  BP_ASSERT(!zeros_.is_open());
  zeros_ = make_memfd("zeros");
  if (zeros_.is_open() && ftruncate(zeros_.number(), kPieceBytesMax) == 0 &&
      fcntl(zeros_.number(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0) {
    return {};
  }
  return error_from_errno("making a file of zeros")
      .set_cure("raise the limits of open files and of a file's size (ulimit -n, ulimit -f)");
}

uint64_t PageWiper::zero(std::span<std::byte> memory) const noexcept {
  BP_ASSERT(zeros_.is_open() && memory.size() <= kPieceBytesMax);
  uint64_t done = 0;
  while (done < memory.size()) {
    const ssize_t got = pread(zeros_.number(), memory.data() + done, memory.size() - done,
                              static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    BP_ASSERT(static_cast<uint64_t>(got) <= memory.size() - done);
    done += static_cast<uint64_t>(got);
  }
  return done;
}

}  // namespace bedplate
