#include "pinned_pool/audit.h"

#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// Whether `path`, as smaps has it, is that of the memfd of `owner`. A newline in a name is written
// there in another form: what is before it has to do.
bool is_memfd_of(const char* path, const OwnerName& owner) noexcept {
  constexpr std::string_view kPrefix = "/memfd:";
  const std::string_view name = owner.view().substr(0, owner.view().find('\n'));
  const std::string_view text(path);
  return text.starts_with(kPrefix) && text.substr(kPrefix.size()).starts_with(name);
}

}  // namespace

void Auditor::complain(const char* format, ...) noexcept {
  if (report_.text[0] != '\0') return;  // the first finding is the one to look at
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(report_.text, sizeof report_.text, format, arguments);
  va_end(arguments);
}

void Auditor::line(const char* line) noexcept {
  Mapping found;
  uint64_t kib = 0;
  int path_start = 0;
  if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n", &found.begin,
                  &found.end, found.rights, &found.offset, &path_start) == 4) {
    found.path = line + path_start;
    mapping(found);
  } else if (current_ != nullptr && std::sscanf(line, "KernelPageSize: %" SCNu64 " kB", &kib) == 1) {
    page_size(kib * kKiB);
  }
}

void Auditor::mapping(const Mapping& found) noexcept {
  current_ = nullptr;
  const uint64_t begin = found.begin;
  const uint64_t end = found.end;
  if (end <= kPoolBase || begin >= kPoolBase + kPoolSpanBytes) return;
  for (uint32_t i = 0; i < map_.segment_count; ++i) {
    const PoolMapSegment& segment = map_.segments[i];
    if (begin < segment.address || begin >= segment.address + segment.bytes) continue;
    current_ = &segment;
    covered_bytes_[i] += end - begin;
    if (end > segment.address + segment.bytes) {
      complain("%s: a mapping runs %" PRIu64 " bytes over its end", segment.owner.text,
               end - segment.address - segment.bytes);
    }
    // Shared, readable, writable, never executable: 'rw-s'.
    if (std::strcmp(found.rights, "rw-s") != 0) {
      complain("%s: 0x%" PRIx64 "-0x%" PRIx64 " has the rights %s, not rw-s", segment.owner.text,
               begin, end, found.rights);
    }
    // Each page of the segment's memfd in its place. Other shared memory has the same rights.
    if (found.offset != begin - segment.address || !is_memfd_of(found.path, segment.owner)) {
      complain("%s: 0x%" PRIx64 "-0x%" PRIx64 " maps something else: offset 0x%" PRIx64 " of %s",
               segment.owner.text, begin, end, found.offset, found.path);
    }
    return;
  }
  complain("0x%" PRIx64 "-0x%" PRIx64 " is mapped in the pool's range and is no segment", begin,
           end);
}

void Auditor::page_size(uint64_t bytes) noexcept {
  if (bytes != current_->page_bytes) {
    complain("%s: has pages of %s, not of %s", current_->owner.text, format_bytes(bytes).text,
             format_bytes(current_->page_bytes).text);
  }
}

AuditReport Auditor::finish() noexcept {
  for (uint32_t i = 0; i < map_.segment_count; ++i) {
    const PoolMapSegment& segment = map_.segments[i];
    if (covered_bytes_[i] < segment.bytes) {
      complain("%s: %" PRIu64 " of %" PRIu64 " bytes are not mapped", segment.owner.text,
               segment.bytes - covered_bytes_[i], segment.bytes);
    }
  }
  report_.ok = report_.text[0] == '\0';
  if (report_.ok) std::strcpy(report_.text, "ok");
  return report_;
}

Result<AuditReport> audit_maps(const PoolMap& map, pid_t pid) noexcept {
  char path[64] = "/proc/self/smaps";
  if (pid != 0) std::snprintf(path, sizeof path, "/proc/%d/smaps", static_cast<int>(pid));
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) {
    return error_from_errno("auditing the pool: opening %s", path)
        .set_cure("run it as the user of the appliance, or as root, while the appliance runs");
  }
  Auditor auditor(map);
  char text[4096];
  size_t kept = 0;
  for (;;) {
    const ssize_t got = read(fd.number(), text + kept, sizeof text - 1 - kept);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("auditing the pool: reading %s", path);
    if (got == 0) break;
    const size_t filled = kept + static_cast<size_t>(got);
    text[filled] = '\0';
    char* start = text;
    while (char* newline = std::strchr(start, '\n')) {
      *newline = '\0';
      auditor.line(start);
      start = newline + 1;
    }
    kept = filled - static_cast<size_t>(start - text);
    if (kept == sizeof text - 1) kept = 0;  // a path longer than the buffer: not one of ours
    std::memmove(text, start, kept);
  }
  return auditor.finish();
}

}  // namespace bedplate
