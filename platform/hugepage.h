// Page sizes: which this machine has, and how many hugepages are free, on each node.
//
// All functions: any thread; nothing is allocated. A number that the kernel does not give counts as
// 0. Source: Documentation/admin-guide/mm/hugetlbpage.rst of the kernel.
#pragma once

#include <cstdint>

#include "platform/numa.h"
#include "platform/result.h"

namespace bedplate {

enum class PageSize : uint64_t {
  k4KiB = uint64_t{4} << 10,
  k2MiB = uint64_t{2} << 20,
  k1GiB = uint64_t{1} << 30,
};

constexpr uint64_t page_bytes(PageSize page) noexcept { return static_cast<uint64_t>(page); }
constexpr bool is_page_bytes(uint64_t bytes) noexcept {
  return bytes == page_bytes(PageSize::k4KiB) || bytes == page_bytes(PageSize::k2MiB) ||
         bytes == page_bytes(PageSize::k1GiB);
}
constexpr bool is_huge(PageSize page) noexcept { return page != PageSize::k4KiB; }

struct HugepageCounts {
  bool supported = false;  // the kernel has a pool of this size
  uint64_t total_count = 0;
  uint64_t available_count = 0;  // free and not yet promised to another mapping
};

// On `node`, or on the whole machine (kAnyNode). On a machine with one node both are the same. The
// numbers are those of this moment: no page is taken. Requires: is_huge(page).
HugepageCounts hugepage_counts(PageSize page, int node = kAnyNode) noexcept;

struct HugepageFile {
  char path[128];
};

// The file in which an administrator sets how many pages of this size there are. It need not exist.
// Requires: is_huge(page).
HugepageFile hugepage_count_file(PageSize page, int node = kAnyNode) noexcept;

// Writes `total` into `path`, which is such a file, to have so many pages of this size: a GiB more
// at a time, since the kernel looks for memory meanwhile. If that takes long, it reports its
// progress (platform/progress.h). The kernel silently leaves out pages that it cannot find. Errors
// (kSystem): the file cannot be written; without a cure.
Result<void> write_hugepage_count(const char* path, PageSize page, uint64_t total) noexcept;

}  // namespace bedplate
