#include "apps/init/mounts.h"

#include <cerrno>

#include <sys/mount.h>
#include <sys/stat.h>

#include "platform/file.h"

namespace bedplate {
namespace {

struct Mount {
  const char* type;
  const char* path;
  unsigned long flags;
  const char* options;
  bool is_needed;
};

constexpr unsigned long kNoPrograms = MS_NOSUID | MS_NODEV | MS_NOEXEC;

constexpr Mount kMounts[] = {
    // The kernel makes the device nodes in it, also for later devices.
    {"devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755", true},
    {"proc", "/proc", kNoPrograms, nullptr, true},
    {"sysfs", "/sys", kNoPrograms, nullptr, true},
    {"tmpfs", "/run", kNoPrograms, "mode=0755", true},
    {"tmpfs", "/tmp", kNoPrograms, "mode=1777", true},
    {"tmpfs", "/dev/shm", kNoPrograms, "mode=1777", true},
    {"pstore", "/sys/fs/pstore", kNoPrograms, nullptr, false},
};

Result<void> mount_one(const Mount& mount) noexcept {
  // Only for needed mounts: the kernel itself makes the optional mount's directory.
  if (mount.is_needed) {
    if (auto made = ensure_directory(mount.path, 0755); !made.ok()) {
      Error error = made.error();
      return error.set_cure("build the image again");
    }
  }
  if (::mount(mount.type, mount.path, mount.type, mount.flags, mount.options) == 0) return {};
  const bool is_unknown = errno == ENODEV || errno == ENOENT;
  if (errno == EBUSY || (is_unknown && !mount.is_needed)) return {};
  return error_from_errno("mounting %s at %s", mount.type, mount.path)
      .set_cure("boot a kernel that supports it");
}

}  // namespace

Result<void> mount_file_systems() noexcept {
  for (const Mount& mount : kMounts) BP_TRY(mount_one(mount));
  return {};
}

}  // namespace bedplate
