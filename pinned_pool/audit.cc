#include "pinned_pool/audit.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <sys/sysmacros.h>

#include "platform/file.h"
#include "platform/units.h"

namespace bedplate {
namespace {

bool is_private(const PoolMapSegment& segment) noexcept { return segment.inode == 0; }

}  // namespace

void Auditor::complain(const char* format, ...) noexcept {
  char finding[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(finding, sizeof finding, format, arguments);
  va_end(arguments);
  constexpr size_t kRestBytes = 32;  // for "; and N more"
  const size_t used = std::strlen(report_.text);
  const bool fits = used + 2 + std::strlen(finding) + kRestBytes <= sizeof report_.text;
  // Once one finding did not fit, all later ones are left out.
  if (fits && told_count_ == report_.finding_count) {
    std::snprintf(report_.text + used, sizeof report_.text - used, "%s%s", used == 0 ? "" : "; ",
                  finding);
    ++told_count_;
  }
  ++report_.finding_count;
}

void Auditor::line(const char* line) noexcept {
  constexpr std::string_view kFlags = "VmFlags:";
  Mapping found;
  unsigned device_major = 0;
  unsigned device_minor = 0;
  uint64_t kib = 0;
  int path_start = 0;
  if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n",
                  &found.begin, &found.end, found.rights, &found.offset, &device_major,
                  &device_minor, &found.inode, &path_start) == 7) {
    found.device = makedev(device_major, device_minor);
    found.path = line[path_start] == '\0' ? "anonymous memory" : line + path_start;
    mapping(found);
  } else if (current_ == nullptr) {
    return;
  } else if (std::sscanf(line, "KernelPageSize: %" SCNu64 " kB", &kib) == 1) {
    page_size(kib * kKiB);
  } else if (std::string_view(line).starts_with(kFlags)) {
    flags(line + kFlags.size());
  }
}

void Auditor::mapping(const Mapping& found) noexcept {
  current_ = nullptr;
  if (found.end <= kPoolBase || found.begin >= kPoolBase + kPoolSpanBytes) return;
  Mapping rest = found;
  for (uint32_t i = 0; i < map_.segment_count; ++i) {
    const PoolMapSegment& segment = map_.segments[i];
    if (rest.begin < segment.address || rest.begin >= segment.address + segment.bytes) continue;
    piece(rest, segment, i);
    // The kernel merges adjacent private segments into one mapping; segments are in order.
    rest.begin = segment.address + segment.bytes;
    const bool has_more =
        rest.begin < rest.end && is_private(segment) && i + 1 < map_.segment_count &&
        map_.segments[i + 1].address == rest.begin && is_private(map_.segments[i + 1]);
    if (has_more) continue;
    if (rest.begin < rest.end) {
      complain("%s: a mapping runs %" PRIu64 " bytes over its end", segment.owner.text,
               rest.end - rest.begin);
    }
    return;
  }
  foreign_mapping(found);
}

// Checks the part of `found` that lies in `segment`, number `index`. `found` begins in it.
void Auditor::piece(const Mapping& found, const PoolMapSegment& segment, uint32_t index) noexcept {
  const uint64_t begin = found.begin;
  const uint64_t end = std::min(found.end, segment.address + segment.bytes);
  current_ = &segment;
  current_begin_ = begin;
  current_end_ = end;
  covered_bytes_[index] += end - begin;
  // Readable, writable unless granted otherwise, never executable.
  const char* rights = is_private(segment) ? "rw-p" : segment.is_writable != 0 ? "rw-s" : "r--s";
  if (std::strcmp(found.rights, rights) != 0) {
    complain("%s: 0x%" PRIx64 "-0x%" PRIx64 " has the rights %s, not %s", segment.owner.text, begin,
             end, found.rights, rights);
  }
  // Each page must map the segment's memfd at the right offset; private memory has no file. Files
  // are compared by inode: any memfd can have any name.
  if (found.device != segment.device || found.inode != segment.inode) {
    complain("%s: 0x%" PRIx64 "-0x%" PRIx64 " maps another file: inode %" PRIu64 ", %s",
             segment.owner.text, begin, end, found.inode, found.path);
  } else if (!is_private(segment) && found.offset != begin - segment.address) {
    complain("%s: 0x%" PRIx64 "-0x%" PRIx64 " maps another part of its file: offset 0x%" PRIx64,
             segment.owner.text, begin, end, found.offset);
  }
}

// Reports a mapping that is no segment, with its path and the segment before it.
void Auditor::foreign_mapping(const Mapping& found) noexcept {
  const PoolMapSegment* before = nullptr;
  for (uint32_t i = 0; i < map_.segment_count; ++i) {
    if (map_.segments[i].address <= found.begin) before = &map_.segments[i];
  }
  complain("0x%" PRIx64 "-0x%" PRIx64 " is mapped %s%s and is not a segment: %s, %s", found.begin,
           found.end, before == nullptr ? "before the pool" : "behind ",
           before == nullptr ? "" : before->owner.text, found.rights, found.path);
}

void Auditor::page_size(uint64_t bytes) noexcept {
  if (bytes != current_->page_bytes) {
    complain("%s: has pages of %s, not of %s", current_->owner.text, format_bytes(bytes).text,
             format_bytes(current_->page_bytes).text);
  }
}

// `text`: words of two letters, each with a space before it; "lo" is locked.
void Auditor::flags(const char* text) noexcept {
  if (current_->is_locked != 0 && std::strstr(text, " lo") == nullptr) {
    complain("%s: 0x%" PRIx64 "-0x%" PRIx64 " is no longer locked", current_->owner.text,
             current_begin_, current_end_);
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
  report_.ok = report_.finding_count == 0;
  if (report_.ok) std::strcpy(report_.text, "ok");
  if (told_count_ < report_.finding_count) {
    const size_t used = std::strlen(report_.text);
    std::snprintf(report_.text + used, sizeof report_.text - used, "; and %" PRIu32 " more",
                  report_.finding_count - told_count_);
  }
  return report_;
}

Result<AuditReport> audit_maps(const PoolMap& map, pid_t pid) noexcept {
  char path[64] = "/proc/self/smaps";
  if (pid != 0) std::snprintf(path, sizeof path, "/proc/%d/smaps", static_cast<int>(pid));
  Auditor auditor(map);
  const auto take_line = [](const char* line, void* into) {
    static_cast<Auditor*>(into)->line(line);
  };
  if (auto read = read_lines(path, take_line, &auditor); !read.ok()) {
    Error error = read.error();
    error.set_doing("auditing the pool: %s", read.error().doing);
    return error.set_cure("%s", pid == 0 ? "mount /proc: mount -t proc proc /proc"
                                         : "run it as the user of the appliance, or as root, while "
                                           "the appliance runs");
  }
  return auditor.finish();
}

}  // namespace bedplate
