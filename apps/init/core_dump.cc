#include "apps/init/core_dump.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/boot/messages_plan.h"
#include "apps/init/machine.h"
#include "platform/file.h"
#include "platform/log.h"

namespace bedplate {
namespace {

// core(5): private memory, shared memory, and shared hugepages; what of these a segment is, and is
// not to be kept, is marked apart.
constexpr unsigned kFilter = 1U << 0 | 1U << 1 | 1U << 5 | 1U << 6;

Result<void> tell_kernel(const char* path, const char* text) noexcept {
  const Fd file(open(path, O_WRONLY | O_CLOEXEC));
  const auto bytes = static_cast<ssize_t>(std::strlen(text));
  if (file.is_open() && write(file.number(), text, std::strlen(text)) == bytes) return {};
  return error_from_errno("writing %s to %s", text, path)
      .set_cure("boot a kernel with core dumps, or set [crash] dump = \"none\"");
}

bool is_kept(const CrashSettings& settings, const Segment& segment) noexcept {
  if (settings.dump == CrashDump::kMetadata) return segment.owner.view() == "boot";
  return std::any_of(settings.owners.begin(), settings.owners.end(), [&](const std::string& text) {
    return names_segment(text, segment.owner);
  });
}

// What the kernel hands over, to the last byte that the device takes. Returns how many came.
uint64_t copy_input(int device) noexcept {
  alignas(4096) static char buffer[256 << 10];
  uint64_t copied = 0;
  bool has_room = device >= 0;
  ssize_t got;
  // What has no room is read all the same: the kernel waits until the pipe is empty.
  while ((got = read(STDIN_FILENO, buffer, sizeof buffer)) > 0) {
    for (ssize_t put = 0, step; has_room && put < got; put += step) {
      step = write(device, buffer + put, static_cast<size_t>(got - put));
      has_room = step > 0;
      if (has_room) copied += static_cast<uint64_t>(step);
    }
  }
  return copied;
}

}  // namespace

Result<void> choose_dump(const CrashSettings& settings, PinnedPool& pool) noexcept {
  if (settings.dump == CrashDump::kNone) {
    const rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0) return error_from_errno("turning core dumps off");
    return {};
  }
  const Fd device(open(settings.device.c_str(), O_WRONLY | O_CLOEXEC));
  if (!device.is_open()) {
    return error_from_errno("opening %s for dumps", settings.device.c_str())
        .set_cure("name a block device, and its driver, in [crash]");
  }
  const rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_CORE, &all);
  char text[512];
  std::snprintf(text, sizeof text, "|/init %s %s %s %u", kDumpCore,
                settings.device.c_str(), name_of(settings.action), settings.delay_s);
  BP_TRY(tell_kernel("/proc/sys/kernel/core_pattern", text));
  BP_TRY(tell_kernel("/proc/sys/kernel/core_pipe_limit", "1"));  // it waits for the pipe's reader
  std::snprintf(text, sizeof text, "%#x", kFilter);
  BP_TRY(tell_kernel("/proc/self/coredump_filter", text));
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    const int advice = is_kept(settings, segment) ? MADV_DODUMP : MADV_DONTDUMP;
    if (madvise(segment.address, segment.bytes, advice) != 0) {
      return error_from_errno("choosing whether a dump keeps %s", segment.owner.text);
    }
  }
  return {};
}

int dump_core(int count, char** words) noexcept {
  if (count != 5) return 2;
  // The kernel gives its helpers the pipe and nothing else.
  while (open("/dev/console", O_WRONLY) >= 0 && fcntl(STDERR_FILENO, F_GETFD) < 0) {
  }
  const char* path = words[2];
  const int device = open(path, O_WRONLY | O_CLOEXEC);
  const uint64_t copied = copy_input(device);
  if (device < 0 || fsync(device) != 0) log_error(error_from_errno("writing the dump to %s", path));
  BP_LOG_INFO("crash: a dump of %" PRIu64 " bytes is on %s; %s in %s s", copied, path, words[3],
              words[4]);
  const timespec pause = {std::atol(words[4]), 0};
  nanosleep(&pause, nullptr);
  for (const MachineEnd end : {MachineEnd::kReboot, MachineEnd::kPowerOff}) {
    if (std::strcmp(words[3], name_of(end)) == 0) end_machine(end);
  }
  end_machine(MachineEnd::kHalt);
}

}  // namespace bedplate
