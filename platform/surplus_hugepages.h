// Surplus hugepages: pages that the kernel makes on demand, beyond its reserved ones (up to
// vm.nr_overcommit_hugepages), and takes back when they are freed.
#pragma once

#include <cstdint>

#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// The number of surplus pages on this machine, in use by any process. Here and below: requires
// is_huge(page); 0 if the kernel has no pages of this size.
uint64_t surplus_hugepage_count(PageSize page) noexcept;

// The number of pages that the kernel may still make; only a request shows whether it finds the
// memory.
uint64_t surplus_hugepages_left(PageSize page) noexcept;

// Reserves `count` pages, free or surplus, and releases them again. The kernel makes surplus pages
// for the reservation: this takes up to some tenths of a second for each GiB, and reports progress.
// Errors (kSystem): the kernel does not have the pages.
Result<void> try_hugepages(PageSize page, uint64_t count) noexcept;

}  // namespace bedplate
