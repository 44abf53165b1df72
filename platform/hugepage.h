// Page sizes: the sizes that a pool can use, and the free hugepages of each size on each node.
//
// All functions: any thread; nothing is allocated. A number that the kernel does not report counts
// as 0. Source: Documentation/admin-guide/mm/hugetlbpage.rst of the kernel.
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
  uint64_t available_count = 0;  // free, and not reserved for another mapping
};

// The counts on `node`, or on the whole machine (kAnyNode). On a machine with one node both are the
// same. Reserved pages are known for the whole machine only: a node's available_count may include
// some. A snapshot: no page is taken. Requires: is_huge(page).
HugepageCounts hugepage_counts(PageSize page, int node = kAnyNode) noexcept;

struct HugepageFile {
  char path[128];
};

// The file in which an administrator sets the number of pages of this size. It need not exist.
// Requires: is_huge(page).
HugepageFile hugepage_count_file(PageSize page, int node = kAnyNode) noexcept;

// Writes `total`, the wanted number of pages of this size, into `path`, a hugepage_count_file(). It
// raises the number by 1 GiB of pages at a time, since the kernel searches for memory during each
// write. Long work reports its progress (platform/progress.h). The kernel silently leaves out pages
// that it cannot find: success does not mean that all pages exist. Requires: is_huge(page). Errors
// (kSystem): the file cannot be written; the caller sets the cure.
Result<void> write_hugepage_count(const char* path, PageSize page, uint64_t total) noexcept;

}  // namespace bedplate
