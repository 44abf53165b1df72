// Surplus hugepages: pages that the kernel makes on demand, beyond its reserved ones (up to
// vm.nr_overcommit_hugepages), and takes back when they are freed.
#pragma once

#include <cstdint>

#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// The number of surplus pages on this machine, in use by any process. Requires, here and below:
// is_huge(page).
uint64_t surplus_hugepage_count(PageSize page) noexcept;

// The number of pages that the kernel may still make; only a request shows whether it finds the
// memory.
uint64_t surplus_hugepages_left(PageSize page) noexcept;

// Reserves `count` pages, free or surplus, and releases them again. The kernel makes surplus pages
// for the reservation, which takes its time. Errors: the kernel does not have the pages.
Result<void> try_hugepages(PageSize page, uint64_t count) noexcept;

}  // namespace bedplate
