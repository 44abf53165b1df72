// Hugepages for the duration of a test: reserved through /sys, and returned by the destructor.
#pragma once

#include <cinttypes>
#include <cstdio>

#include "platform/hugepage.h"

namespace bedplate::test {

// Reserves `page_count` more pages of 2 MiB, which needs root. are_there(): whether that many pages
// are free, also if the reservation has failed.
class LentHugepages {
 public:
  explicit LentHugepages(uint64_t page_count) noexcept : page_count_(page_count) {
    const uint64_t before = hugepage_counts(PageSize::k2MiB).total_count;
    write_count(before + page_count);
    added_count_ = hugepage_counts(PageSize::k2MiB).total_count - before;
  }
  LentHugepages(const LentHugepages&) = delete;
  LentHugepages& operator=(const LentHugepages&) = delete;
  ~LentHugepages() {
    if (added_count_ == 0) return;
    write_count(hugepage_counts(PageSize::k2MiB).total_count - added_count_);
  }

  bool are_there() const noexcept {
    return hugepage_counts(PageSize::k2MiB).available_count >= page_count_;
  }

 private:
  static void write_count(uint64_t page_count) noexcept {
    std::FILE* file = std::fopen(hugepage_count_file(PageSize::k2MiB).path, "w");
    if (file == nullptr) return;
    std::fprintf(file, "%" PRIu64 "\n", page_count);
    std::fclose(file);
  }

  uint64_t page_count_;
  uint64_t added_count_ = 0;
};

}  // namespace bedplate::test
