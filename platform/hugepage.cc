#include "platform/hugepage.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "platform/assert.h"
#include "platform/file.h"

namespace bedplate {
namespace {

HugepageFile file_of(PageSize page, int node, const char* name) noexcept {
  BP_ASSERT(is_huge(page));
  HugepageFile file;
  char directory[64] = "/sys/kernel/mm";
  if (node != kAnyNode && memory_nodes().count() > 1) {
    std::snprintf(directory, sizeof directory, "/sys/devices/system/node/node%d", node);
  }
  std::snprintf(file.path, sizeof file.path, "%s/hugepages/hugepages-%" PRIu64 "kB/%s", directory,
                page_bytes(page) / 1024, name);
  return file;
}

}  // namespace

HugepageCounts hugepage_counts(PageSize page, int node) noexcept {
  const auto total_count = read_number_file(file_of(page, node, "nr_hugepages").path);
  const auto count = [page](int where, const char* name) {
    return read_number_file(file_of(page, where, name).path).value_or(0);
  };
  // "resv" pages are still counted as free, but another mapping has a right to them; the kernel
  // counts these for the whole machine only.
  const uint64_t free_count = count(kAnyNode, "free_hugepages");
  const uint64_t unpromised_count =
      free_count - std::min(free_count, count(kAnyNode, "resv_hugepages"));
  return {total_count.has_value(), total_count.value_or(0),
          std::min(count(node, "free_hugepages"), unpromised_count)};
}

HugepageFile hugepage_count_file(PageSize page, int node) noexcept {
  return file_of(page, node, "nr_hugepages");
}

}  // namespace bedplate
