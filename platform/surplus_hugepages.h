// Hugepages that the kernel makes when they are asked for, beyond those that it keeps
// (vm.nr_overcommit_hugepages): surplus pages, which it takes back when they are given up.
#pragma once

#include <cstdint>

#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

// The number of surplus pages on this machine, whoever has them. Requires, here and below:
// is_huge(page).
uint64_t surplus_hugepage_count(PageSize page) noexcept;

// The number of pages that the kernel may still make; only a request shows if it finds the memory.
uint64_t surplus_hugepages_left(PageSize page) noexcept;

// Has `count` pages promised to it, from wherever they come, and gives the promise back: the kernel
// makes surplus pages for it, so this takes as long as that. Errors: the kernel does not have them.
Result<void> try_hugepages(PageSize page, uint64_t count) noexcept;

}  // namespace bedplate
