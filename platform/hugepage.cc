#include "platform/hugepage.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/file.h"
#include "platform/progress.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kStepBytes = kGiB;  // takes some tenths of a second if memory is fragmented

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
  // "resv" pages still count as free, but another mapping has reserved them; the kernel counts
  // these for the whole machine only.
  const uint64_t free_count = count(kAnyNode, "free_hugepages");
  const uint64_t unpromised_count =
      free_count - std::min(free_count, count(kAnyNode, "resv_hugepages"));
  return {total_count.has_value(), total_count.value_or(0),
          std::min(count(node, "free_hugepages"), unpromised_count)};
}

HugepageFile hugepage_count_file(PageSize page, int node) noexcept {
  return file_of(page, node, "nr_hugepages");
}

Result<void> write_hugepage_count(const char* path, PageSize page, uint64_t total) noexcept {
  BP_ASSERT(is_huge(page));
  const uint64_t first = read_number_file(path).value_or(total);
  const uint64_t step = kStepBytes / page_bytes(page);
  Progress progress("reserving hugepages",
                    {.total_bytes = (total - std::min(total, first)) * page_bytes(page)});
  bool finds_memory = true;  // else asks for the rest at once: one vain search more, not many
  for (uint64_t count = std::min(first, total), next = count;; count = next) {
    next = finds_memory ? count + std::min(step, total - count) : total;
    // The kernel takes a setting in one write, or not at all.
    char text[24];
    const int bytes = std::snprintf(text, sizeof text, "%" PRIu64, next);
    const Fd file(open(path, O_WRONLY | O_CLOEXEC));
    if (!file.is_open() || write(file.number(), text, static_cast<size_t>(bytes)) != bytes) {
      return error_from_errno("writing %" PRIu64 " into %s", next, path);
    }
    if (next == total) return {};
    progress.add((next - count) * page_bytes(page));
    finds_memory = read_number_file(path).value_or(0) >= next;
  }
}

}  // namespace bedplate
