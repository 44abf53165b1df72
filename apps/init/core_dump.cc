#include "apps/init/core_dump.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <fcntl.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/boot/messages_plan.h"
#include "apps/init/machine.h"
#include "platform/assert.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

// core(5): anonymous memory and hugepages, private and shared. Segments that a dump leaves out are
// excluded one by one.
constexpr unsigned kFilter = 1U << 0 | 1U << 1 | 1U << 5 | 1U << 6;

// The size of core_pattern with its NUL; the kernel truncates a longer text.
constexpr size_t kPatternBytes = 128;

Result<void> tell_kernel(const char* path, const char* text) noexcept {
  const Fd file(open(path, O_WRONLY | O_CLOEXEC));
  const auto bytes = static_cast<ssize_t>(std::strlen(text));
  if (file.is_open() && write(file.number(), text, std::strlen(text)) == bytes) return {};
  return error_from_errno("writing %s to %s", text, path)
      .set_cure("boot a kernel with core dumps, or set [crash] dump = \"none\"");
}

bool is_kept(const CrashSettings& settings, const Segment& segment) noexcept {
  BP_ASSERT(settings.dump != CrashDump::kNone);
  if (settings.dump == CrashDump::kMetadata) return segment.owner.view() == "boot";
  return std::any_of(settings.owners.begin(), settings.owners.end(),
                     [&](const std::string& text) { return names_segment(text, segment.owner); });
}

struct Copied {
  uint64_t came_bytes = 0;
  uint64_t kept_bytes = 0;
  int error_number = 0;  // of the first write that failed
};

// Copies the kernel's dump, up to the last byte that fits the device. Reads the rest, too, since
// the kernel waits until the pipe is empty.
Copied copy_input(int device) noexcept {
  alignas(4096) static char buffer[256 << 10];
  Copied copied;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return copied;
    copied.came_bytes += static_cast<uint64_t>(got);
    for (ssize_t put = 0; copied.error_number == 0 && put < got;) {
      const ssize_t step = write(device, buffer + put, static_cast<size_t>(got - put));
      if (step < 0 && errno == EINTR) continue;
      if (step <= 0) {
        copied.error_number = step == 0 ? ENOSPC : errno;
        break;
      }
      put += step;
      copied.kept_bytes += static_cast<uint64_t>(step);
    }
  }
}

void write_dump(const char* path) noexcept {
  const int device = open(path, O_WRONLY | O_CLOEXEC);
  if (device < 0) {
    log_error(error_from_errno("crash: opening %s for the dump, which is lost", path)
                  .set_cure("name a block device, and its driver, in [crash]"));
    return;
  }
  Copied copied = copy_input(device);
  if (fsync(device) != 0 && copied.error_number == 0) copied.error_number = errno;
  if (copied.error_number == 0) {
    BP_LOG_INFO("crash: a dump of %" PRIu64 " bytes is on %s", copied.kept_bytes, path);
    return;
  }
  log_error(error_while("crash: writing the dump to %s, which has %" PRIu64 " of %" PRIu64 " bytes",
                        path, copied.kept_bytes, copied.came_bytes)
                .set_answer_errno(copied.error_number)
                .set_cure("name a larger device in [crash], or one that works"));
}

Fd open_for_dumps(const std::string& path) noexcept {
  return Fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
}

}  // namespace

Result<void> choose_dump(const CrashSettings& settings, PinnedPool& pool) noexcept {
  BP_ASSERT(!pool.is_sealed());
  if (settings.dump == CrashDump::kNone) {
    const rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) == 0) return {};
    return error_from_errno("turning core dumps off").set_cure("%s", kGiveAllRights);
  }
  // A disk appears in /dev some time before it can be opened.
  wait_for_device(settings.device.c_str(),
                  [&settings] { return open_for_dumps(settings.device).is_open(); });
  const Fd device = open_for_dumps(settings.device);
  if (!device.is_open()) {
    return error_from_errno("opening %s for dumps", settings.device.c_str())
        .set_cure("name a block device, and its driver, in [crash]");
  }
  const rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_CORE, &all) != 0) {
    return error_from_errno("raising the limit of core dumps").set_cure("%s", kGiveAllRights);
  }
  char text[kPatternBytes];
  // %P: the number of the crashed process in the initial PID namespace.
  const int bytes =
      std::snprintf(text, sizeof text, "|/init %s %%P %s %s %u", kDumpCore, settings.device.c_str(),
                    to_text(settings.action), settings.delay_s);
  BP_ASSERT(bytes < static_cast<int>(sizeof text));  // the configuration's limit sees to it
  BP_TRY(tell_kernel("/proc/sys/kernel/core_pattern", text));
  BP_TRY(tell_kernel("/proc/sys/kernel/core_pipe_limit", "1"));  // it waits for the reader
  std::snprintf(text, sizeof text, "%#x", kFilter);
  BP_TRY(tell_kernel("/proc/self/coredump_filter", text));
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    const int advice = is_kept(settings, segment) ? MADV_DODUMP : MADV_DONTDUMP;
    if (madvise(segment.address, segment.bytes, advice) != 0) {
      return error_from_errno("choosing whether a dump keeps %s", segment.owner.text)
          .set_cure("this is a defect, or a filter refuses system calls");
    }
  }
  return {};
}

int dump_core(int count, char** words) noexcept {
  // The machine ends if its first process has crashed, and for no other process.
  if (count != 6 || std::strcmp(words[2], "1") != 0) return 2;
  // The kernel gives its helpers only the pipe, no standard error.
  for (const char* path : {"/dev/kmsg", "/dev/console"}) {
    if (const int file = open(path, O_WRONLY | O_CLOEXEC); file >= 0) dup2(file, STDERR_FILENO);
  }
  write_dump(words[3]);
  BP_LOG_INFO("crash: %s in %s s", words[4], words[5]);
  std::string_view delay_s(words[5]);
  sleep_s(take_number<uint32_t>(&delay_s, 0));
  for (const MachineEnd end : {MachineEnd::kReboot, MachineEnd::kPowerOff}) {
    if (std::strcmp(words[4], to_text(end)) == 0) end_machine(end);
  }
  end_machine(MachineEnd::kHalt);
}

}  // namespace bedplate
