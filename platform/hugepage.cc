#include "platform/hugepage.h"

#include <cstdio>

#include "platform/assert.h"
#include "platform/file.h"

namespace bedplate {
namespace {

#define BP_HUGEPAGES "/sys/kernel/mm/hugepages/hugepages-"

const char* directory_of(PageSize page) noexcept {
  return page == PageSize::k1GiB ? BP_HUGEPAGES "1048576kB" : BP_HUGEPAGES "2048kB";
}

uint64_t read_count(PageSize page, const char* name, bool* present) noexcept {
  char path[96];
  std::snprintf(path, sizeof path, "%s/%s", directory_of(page), name);
  const auto count = read_number_file(path);
  *present = count.has_value();
  return count.value_or(0);
}

}  // namespace

HugepageCounts hugepage_counts(PageSize page) noexcept {
  BP_ASSERT(is_huge(page));
  HugepageCounts counts;
  bool ignored = false;
  counts.total_count = read_count(page, "nr_hugepages", &counts.supported);
  const uint64_t free_count = read_count(page, "free_hugepages", &ignored);
  // "resv" pages are still counted as free, but another mapping has a right to them.
  const uint64_t promised_count = read_count(page, "resv_hugepages", &ignored);
  counts.available_count = free_count > promised_count ? free_count - promised_count : 0;
  return counts;
}

const char* hugepage_count_file(PageSize page) noexcept {
  BP_ASSERT(is_huge(page));
  return page == PageSize::k1GiB ? BP_HUGEPAGES "1048576kB/nr_hugepages"
                                 : BP_HUGEPAGES "2048kB/nr_hugepages";
}

}  // namespace bedplate
