// The audit: compares the kernel's mappings with the pool map.
//
// It reads /proc/<pid>/smaps, so it can run at any time, and from another process (`bedplate
// stats`). It finds each hole, each foreign mapping (in a gap, or in place of a segment's own
// memfd), a wrong file offset, wrong rights, a wrong page size and a lost lock. It names the owner
// of the segment; for a mapping in a gap, the owner of the segment before it. It does not look at
// the physical pages, and does not tell one private mapping from another.
#pragma once

#include <sys/types.h>

#include "pinned_pool/pool_map.h"
#include "platform/result.h"

namespace bedplate {

struct AuditReport {
  bool ok = false;
  uint32_t finding_count = 0;
  // "ok", or the findings with their owners, separated by "; ". It ends with "; and N more" if some
  // findings do not fit.
  char text[1024] = {};
};

// Compares the maps of process `pid` (0: this one) with `map`.
// Errors: the maps cannot be read (no such process, or no right to read them).
// Threads: any, several at once. Allocates nothing.
Result<AuditReport> audit_maps(const PoolMap& map, pid_t pid) noexcept;

// Compares an smaps file with `map`, which outlives this object. Call line() for each line, then
// finish() once.
class Auditor {
 public:
  explicit Auditor(const PoolMap& map) noexcept : map_(map) {}
  // `line` is terminated and without its newline.
  void line(const char* line) noexcept;
  AuditReport finish() noexcept;

 private:
  struct Mapping {
    uint64_t begin = 0;
    uint64_t end = 0;
    char rights[8] = {};
    uint64_t offset = 0;  // in the file
    uint64_t device = 0;  // as in st_dev
    uint64_t inode = 0;
    const char* path = "";
  };

  void mapping(const Mapping& found) noexcept;
  void piece(const Mapping& found, const PoolMapSegment& segment, uint32_t index) noexcept;
  void foreign_mapping(const Mapping& found) noexcept;
  void page_size(uint64_t bytes) noexcept;
  void flags(const char* text) noexcept;
  void complain(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

  const PoolMap& map_;
  AuditReport report_;
  uint32_t told_count_ = 0;                  // findings in the text
  const PoolMapSegment* current_ = nullptr;  // the segment that the last mapping lies in
  uint64_t current_begin_ = 0;               // that mapping's begin and end
  uint64_t current_end_ = 0;
  uint64_t covered_bytes_[kSegmentCountMax] = {};
};

}  // namespace bedplate
