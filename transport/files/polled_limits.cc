#include "transport/files/polled_limits.h"

#include <algorithm>
#include <cerrno>

#include <dirent.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kSysfsSectorBytes = 512;
constexpr uint64_t kXfsMagic = 0x5846'5342;  // "XFSB"; older linux/magic.h lack it
constexpr const char* kWithout = "leave \"polled\" out";

// Whether the folder has any entries.
bool has_entries(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return false;
  bool has_any = false;
  while (const dirent* entry = readdir(folder)) has_any |= entry->d_name[0] != '.';
  closedir(folder);
  return has_any;
}

// The numbers in the folder of a drive's queue. A missing number means no limit.
struct QueueNumbers {
  std::string folder;

  uint64_t read(const char* name, uint64_t otherwise) const {
    return read_number_file((folder + name).c_str()).value_or(otherwise);
  }
};

Error not_polled() { return error_while("checking whether it can be polled"); }

}  // namespace

Result<PolledLimits> polled_limits_of(dev_t number, bool has_file_system, const std::string& root) {
  const std::string device = root + "/sys/dev/block/" + std::to_string(major(number)) + ":" +
                             std::to_string(minor(number));
  if (access(device.c_str(), F_OK) != 0) {
    return not_polled()
        .set_answer("it is not on a block device of its own")
        .set_cure("name a drive or a partition, or a file in ext4 or xfs on one; or %s", kWithout);
  }
  // A partition's folder lies within its drive's.
  const bool is_partition = access((device + "/partition").c_str(), F_OK) == 0;
  const std::string drive = is_partition ? device + "/.." : device;
  if (has_entries(drive + "/slaves")) {
    return not_polled()
        .set_answer("its device combines others (dm, md) and splits requests itself")
        .set_cure("name one of those devices, or %s", kWithout);
  }
  const QueueNumbers queue = {drive + "/queue/"};
  if (queue.read("io_poll", 0) != 1) {
    return not_polled()
        .set_answer("its drive cannot be polled: the driver has no poll queues")
        .set_cure("for NVMe: set nvme.poll_queues=N on the kernel's command line, or options nvme "
                  "poll_queues=N in /etc/modprobe.d, with N the number of shards; or %s",
                  kWithout);
  }
  PolledLimits limits;
  limits.chunk_bytes = queue.read("chunk_sectors", 0) * kSysfsSectorBytes;
  if (limits.chunk_bytes != 0 && has_file_system) {
    return not_polled()
        .set_answer("no request may cross a boundary on its drive (queue/chunk_sectors), and the "
                    "position of the file is not known")
        .set_cure("name the drive or a partition as \"device\", or %s", kWithout);
  }
  // If a request begins or ends within a physical block, the kernel may split it one block earlier.
  const uint64_t logical_bytes = queue.read("logical_block_size", kSysfsSectorBytes);
  const uint64_t physical_bytes = queue.read("physical_block_size", logical_bytes);
  limits.slack_bytes = physical_bytes > logical_bytes ? physical_bytes - logical_bytes : 0;
  const uint64_t bytes_max = queue.read("max_sectors_kb", 4) * kKiB;
  limits.bytes_max = bytes_max > limits.slack_bytes ? bytes_max - limits.slack_bytes : 0;
  limits.page_count_max = static_cast<uint32_t>(queue.read("max_segments", 1));
  // Adjacent segments must meet at multiples of this mask + 1; pages meet only at multiples of a
  // page.
  if (queue.read("virt_boundary_mask", 0) >= PolledLimits::kPageBytes) limits.page_count_max = 1;
  if (queue.read("max_segment_size", kGiB) < PolledLimits::kPageBytes) limits.page_count_max = 0;
  if (limits.bytes_max < logical_bytes || limits.page_count_max == 0) {
    return not_polled()
        .set_answer("its drive does not accept a request of one page")
        .set_cure("%s", kWithout);
  }
  if (is_partition) {
    const auto start = read_number_file((device + "/start").c_str());
    limits.start_bytes = start.value_or(0) * kSysfsSectorBytes;
  }
  return limits;
}

Result<PolledLimits> polled_limits_of_file(int fd) {
  struct stat status {};
  struct statfs system {};
  if (fstat(fd, &status) != 0 || fstatfs(fd, &system) != 0) {
    return not_polled().set_answer_errno(errno);
  }
  if (S_ISBLK(status.st_mode)) return polled_limits_of(status.st_rdev, false);
  const auto magic = static_cast<uint64_t>(system.f_type);
  struct fsxattr attributes {};
  const bool is_elsewhere = magic == kXfsMagic && ioctl(fd, FS_IOC_FSGETXATTR, &attributes) == 0 &&
                            (attributes.fsx_xflags & FS_XFLAG_REALTIME) != 0;
  if ((magic != EXT4_SUPER_MAGIC && magic != kXfsMagic) || is_elsewhere) {
    return not_polled()
        .set_answer("only files of ext4 and xfs on one drive can be polled; this one is on another "
                    "file system")
        .set_cure("put it on one of these, or name a drive as \"device\"; or %s", kWithout);
  }
  return polled_limits_of(status.st_dev, true);
}

}  // namespace bedplate
