#include "platform/surplus_hugepages.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/file.h"
#include "platform/memfd.h"
#include "platform/progress.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kPieceBytes = kGiB;  // takes some tenths of a second if memory is fragmented

uint64_t count_of(PageSize page, const char* name) noexcept {
  char path[128];
  std::snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s",
                page_bytes(page) / 1024, name);
  return read_number_file(path).value_or(0);
}

}  // namespace

uint64_t surplus_hugepage_count(PageSize page) noexcept {
  BP_ASSERT(is_huge(page));
  return count_of(page, "surplus_hugepages");
}

uint64_t surplus_hugepages_left(PageSize page) noexcept {
  BP_ASSERT(is_huge(page));
  const uint64_t allowed = count_of(page, "nr_overcommit_hugepages");
  return allowed - std::min(allowed, surplus_hugepage_count(page));
}

Result<void> try_hugepages(PageSize page, uint64_t count) noexcept {
  BP_ASSERT(is_huge(page));
  const unsigned size = page == PageSize::k2MiB ? MFD_HUGE_2MB : MFD_HUGE_1GB;
  const uint64_t bytes = count * page_bytes(page);
  const Fd fd = make_memfd("hugepages", MFD_HUGETLB | size);
  const auto refused = [count] {
    return error_from_errno("reserving %" PRIu64 " surplus hugepages", count);
  };
  if (!fd.is_open() || ftruncate(fd.number(), static_cast<off_t>(bytes)) != 0) return refused();
  Progress progress("making hugepages", {.total_bytes = bytes});
  // The file keeps the reservation of all its mapped pages for as long as it exists.
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t piece = std::min(kPieceBytes, bytes - done);
    void* memory =
        mmap(nullptr, piece, PROT_READ, MAP_SHARED, fd.number(), static_cast<off_t>(done));
    if (memory == MAP_FAILED) return refused();
    munmap(memory, piece);
    done += piece;
    progress.add(piece);
  }
  return {};
}

}  // namespace bedplate
