// Page sizes: which this machine has, and how many hugepages are free.
#pragma once

#include <cstdint>

namespace bedplate {

enum class PageSize : uint64_t {
  k4KiB = uint64_t{4} << 10,
  k2MiB = uint64_t{2} << 20,
  k1GiB = uint64_t{1} << 30,
};

constexpr uint64_t page_bytes(PageSize page) noexcept { return static_cast<uint64_t>(page); }
constexpr bool is_huge(PageSize page) noexcept { return page != PageSize::k4KiB; }

struct HugepageCounts {
  bool supported = false;  // the kernel has a pool of this size
  uint64_t total_count = 0;
  uint64_t available_count = 0;  // free and not yet promised to another mapping
};

// Requires: is_huge(page).
HugepageCounts hugepage_counts(PageSize page) noexcept;

// The file in which an administrator sets how many pages of this size there are.
const char* hugepage_count_file(PageSize page) noexcept;

}  // namespace bedplate
