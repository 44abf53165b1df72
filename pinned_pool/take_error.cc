#include "pinned_pool/take_error.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include <sys/resource.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/forbidden_calls.h"
#include "platform/numa.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// A limit that the kernel does not report counts as no limit.
uint64_t limit_of(__rlimit_resource resource) noexcept {
  rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(resource, &limit);
  return limit.rlim_cur;
}

Error& with_memory_cure(Error& error, const TakeAttempt& attempt) noexcept {
  if (!is_huge(attempt.page) && promises_strictly()) {
    return error.set_cure(
        "the kernel commits no more (vm.overcommit_memory is 2): sysctl vm.overcommit_memory=0, or "
        "raise vm.overcommit_ratio, or make [pool] bytes smaller");
  }
  if (!is_huge(attempt.page)) return error.set_cure("free memory, or make [pool] bytes smaller");
  const HugepageCounts counts = hugepage_counts(attempt.page, attempt.node);
  const uint64_t needed = attempt.bytes / page_bytes(attempt.page);
  return error.set_cure("%" PRIu64 " pages of %s are free, %" PRIu64 " are needed: echo %" PRIu64
                        " > %s",
                        counts.available_count, format_bytes(page_bytes(attempt.page)).text, needed,
                        counts.total_count + needed - std::min(needed, counts.available_count),
                        hugepage_count_file(attempt.page, attempt.node).path);
}

const char* call_of(TakeStep step) noexcept {
  switch (step) {
    case TakeStep::kMakeFile: return "memfd_create";
    case TakeStep::kSizeFile: return "ftruncate";
    case TakeStep::kMap: return "mmap";
    case TakeStep::kBind: return "mbind (containers need CAP_SYS_NICE)";
    case TakeStep::kPopulate: return "madvise";
    case TakeStep::kSealFile: return "fcntl";
    case TakeStep::kLookAtFile: break;
  }
  return "newfstatat";
}

// The first mapping of this process that overlaps a range.
struct Intruder {
  uint64_t begin = 0;
  uint64_t end = 0;
  char text[128] = "";  // its line of /proc/self/maps, from the addresses on
};

void look_at_mapping(const char* line, void* into) noexcept {
  auto* intruder = static_cast<Intruder*>(into);
  uint64_t begin = 0, end = 0;
  if (intruder->text[0] != '\0' || std::sscanf(line, "%" SCNx64 "-%" SCNx64, &begin, &end) != 2) {
    return;
  }
  if (begin >= intruder->end || end <= intruder->begin) return;
  std::snprintf(intruder->text, sizeof intruder->text, "%s", line);
}

Error& with_intruder(Error& error, const TakeAttempt& attempt) noexcept {
  Intruder intruder;
  intruder.begin = reinterpret_cast<uintptr_t>(attempt.address);
  intruder.end = intruder.begin + attempt.bytes;
  (void)read_lines("/proc/self/maps", &look_at_mapping, &intruder).ok();
  error.set_answer("its address %p is already in use in this process%s%s", attempt.address,
                   intruder.text[0] != '\0' ? ": " : "", intruder.text);
  return error.set_cure("run without what mapped it: a preloaded library, a debugger, a sanitizer");
}

}  // namespace

Error take_error(const TakeAttempt& attempt, TakeStep step, int error_number) noexcept {
  Error error;
  char on_node[24] = "";
  if (attempt.node != kAnyNode) std::snprintf(on_node, sizeof on_node, " on node %d", attempt.node);
  error.set_doing("taking %s for %s in pages of %s%s", format_bytes(attempt.bytes).text,
                  attempt.owner.text, format_bytes(page_bytes(attempt.page)).text, on_node);
  error.set_answer_errno(error_number);
  if (error_number == ECANCELED) return error.set_answer("interrupted by a request to stop");
  if (says_forbidden(error_number)) return set_cure_of_forbidden(&error, call_of(step));
  if (step == TakeStep::kSealFile) return error.set_cure("use a kernel with memfd seals");
  if (step == TakeStep::kBind) return error.set_cure("choose another node");
  if (step == TakeStep::kMap && error_number == EEXIST) return with_intruder(error, attempt);
  if (step == TakeStep::kMap && error_number == ENOMEM && limit_of(RLIMIT_AS) != RLIM_INFINITY) {
    return error.set_cure("raise the limit on address space: ulimit -v unlimited");
  }
  if (step == TakeStep::kMap && error_number == ENOMEM && attempt.is_private &&
      limit_of(RLIMIT_DATA) != RLIM_INFINITY) {
    return error.set_cure("raise the limit on data: ulimit -d unlimited");
  }
  if (step == TakeStep::kSizeFile && error_number == EFBIG) {
    error.set_answer("a file may have at most %s, and a segment is a file",
                     format_bytes(limit_of(RLIMIT_FSIZE)).text);
    return error.set_cure("raise the limit on files: ulimit -f unlimited");
  }
  // The error already has the cure of EMFILE and ENFILE.
  if (step == TakeStep::kMakeFile && (error_number == EMFILE || error_number == ENFILE)) {
    return error;
  }
  if (step == TakeStep::kMakeFile && error_number == EACCES) {
    return error.set_cure("allow memfd_create: sysctl vm.memfd_noexec forbids it");
  }
  return with_memory_cure(error, attempt);
}

const char* cure_for_lock_limit() noexcept {
  return geteuid() != 0 ? "run as root, or: "
                        : "let root keep CAP_IPC_LOCK (containers drop it), or: ";
}

bool promises_strictly() noexcept {
  constexpr uint64_t kStrict = 2;
  return read_number_file("/proc/sys/vm/overcommit_memory") == kStrict;
}

bool may_make_file_of(uint64_t bytes) noexcept { return bytes <= limit_of(RLIMIT_FSIZE); }

}  // namespace bedplate
