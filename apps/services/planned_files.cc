#include "apps/services/planned_files.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "apps/services/service_plan.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint32_t kFileOperationCountMax = 1024;
// The alignment of direct access if neither the file system nor the device tells it.
constexpr uint32_t kUsualAlignmentBytes = 4096;
constexpr uint32_t kSectorBytes = 512;
constexpr int kLinksMax = 40;  // as many as the kernel follows

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The path that `path` leads to: symbolic links are followed, also the last one of a missing file.
std::string target_of(const std::string& path) {
  char target[PATH_MAX];
  std::string at = path;
  for (int links = 0; links < kLinksMax; ++links) {
    const ssize_t bytes = readlink(at.c_str(), target, sizeof target);
    if (bytes <= 0) break;
    const std::string_view to(target, static_cast<size_t>(bytes));
    at = to[0] == '/' ? std::string(to) : directory_of(at) + "/" + std::string(to);
  }
  if (realpath(directory_of(at).c_str(), target) == nullptr) return at;
  return target + at.substr(at.rfind('/'));
}

// Whether the path leads to the file system of the device nodes. A file there lies in memory, and
// is gone at the next boot. Other file systems below /dev, such as /dev/shm, are meant to be used.
bool is_among_devices(const std::string& path) {
  std::string at = target_of(path);
  struct stat devices {};
  struct stat status {};
  if (!at.starts_with("/dev/") || stat("/dev", &devices) != 0) return false;
  do {
    at = directory_of(at);
  } while (stat(at.c_str(), &status) != 0 && at != "/");
  return status.st_dev == devices.st_dev;
}

// The configuration key of the path: "journal in [store]"; without one, the table.
std::string where_it_is_said(const ServiceNeeds& service, const FilePlan& plan) {
  return plan.key.empty() ? "[" + service.name + "]" : plan.key + " in [" + service.name + "]";
}

Error refused(const ServiceNeeds& service, const FilePlan& plan) {
  return error_while("opening %s for %s", plan.path.c_str(),
                     where_it_is_said(service, plan).c_str());
}

Error kind_error(const ServiceNeeds& service, const FilePlan& plan) {
  return refused(service, plan)
      .set_answer("it is neither a file nor a block device")
      .set_cure("name a file or a block device");
}

Error missing_device_error(const ServiceNeeds& service, const FilePlan& plan) {
  return refused(service, plan)
      .set_answer("there is no such device")
      .set_cure("attach it (lsblk lists the present ones), or name a file outside /dev");
}

Error open_error(const ServiceNeeds& service, const FilePlan& plan, int number) {
  Error error = refused(service, plan);
  if (number == EINVAL && plan.is_direct) {
    // A pipe or a terminal fails at O_DIRECT, too, but not because of a file system.
    struct stat status {};
    if (stat(plan.path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
        !S_ISBLK(status.st_mode)) {
      return kind_error(service, plan);
    }
    error.set_answer("its file system does not support direct access (O_DIRECT)");
    return error.set_cure("move it to one that does (ext4, xfs), or open it without O_DIRECT");
  }
  error.set_answer_errno(number);
  switch (number) {
    case ENOENT:
      return error.set_cure(plan.create ? "create its directory, or name another file"
                                        : "create it, or name another file");
    case EACCES:
    case EPERM:
    case EROFS:
      return error.set_cure("run as its owner or as root, and check that its file system can be %s",
                            plan.is_writable ? "written to" : "read");
    case EISDIR: return error.set_cure("name a file, or a block device");
    case EBUSY: return error.set_cure("unmount it, and stop what else uses it (lsblk, fuser)");
    case ETXTBSY: return error.set_cure("name another file: this one is a running program");
    default: return error.set_cure("correct this, or name another file");
  }
}

// Finds its size and kind. Returns false if it is neither a file nor a block device.
bool look_at(int fd, uint64_t* bytes, bool* is_device) noexcept {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  *is_device = S_ISBLK(status.st_mode);
  *bytes = static_cast<uint64_t>(status.st_size);
  if (*is_device) return ioctl(fd, BLKGETSIZE64, bytes) == 0;
  return S_ISREG(status.st_mode);
}

uint32_t direct_alignment_bytes(int fd, bool is_device) noexcept {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0 && status.stx_dio_offset_align != 0) {
    return std::max(status.stx_dio_offset_align, status.stx_dio_mem_align);
  }
#endif
  int sector_bytes = 0;
  if (is_device && ioctl(fd, BLKSSZGET, &sector_bytes) == 0) {
    return static_cast<uint32_t>(sector_bytes);
  }
  return kUsualAlignmentBytes;
}

// The process that holds the lock on `status`'s file; 0: /proc/locks does not name it.
long holder_of(const struct stat& status) {
  std::ifstream locks("/proc/locks");
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x:%lu", major(status.st_dev), minor(status.st_dev),
                static_cast<unsigned long>(status.st_ino));
  // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"
  std::string line;
  while (std::getline(locks, line)) {
    std::istringstream words(line);
    std::string number, kind, advice, mode, file;
    long pid = 0;
    words >> number >> kind >> advice >> mode >> pid >> file;
    if (kind == "FLOCK" && file == wanted && pid > 0) return pid;
  }
  return 0;
}

// The kernel keeps the files of a ring, with their locks and claims, until it has torn the ring
// down, a while after the process has ended. After this time a lock belongs to another process.
constexpr uint64_t kRingEndNs = 2 * kNsPerSecond;

bool is_gone(long pid) noexcept {
  return pid == 0 || (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
}

// Waits a moment. Returns false once the time is up.
bool try_again(uint64_t begin_ns) noexcept {
  const timespec moment = {.tv_sec = 0, .tv_nsec = 5 * static_cast<long>(kNsPerMs)};
  nanosleep(&moment, nullptr);
  return monotonic_ns() - begin_ns < kRingEndNs;
}

bool is_locked(const FilePlan& plan) noexcept { return plan.is_writable || plan.excludes_writers; }

// Locks the file for one writer, or for any number of readers.
Result<void> lock(const ServiceNeeds& service, const FilePlan& plan, int fd) {
  Error error = refused(service, plan);
  struct stat status {};
  if (fstat(fd, &status) != 0) return error.set_answer_errno(errno);
  const uint64_t begin_ns = monotonic_ns();
  long pid = 0;
  do {
    if (flock(fd, (plan.is_writable ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) {
      return error.set_answer_errno(errno).set_cure("move it to a file system that supports "
                                                    "flock(2)");
    }
    pid = holder_of(status);
  } while (is_gone(pid) && try_again(begin_ns));
  if (pid == getpid()) {
    return error.set_answer("this process has already locked it").set_cure("name another file");
  }
  if (pid == 0) {
    error.set_answer("another process has locked it");
  } else {
    error.set_answer("process %ld has locked it", pid);
  }
  return error.set_cure(
      "stop that process first, or name another file: %s",
      plan.is_writable ? "a file has only one writer" : "that process writes to this one");
}

// Identifies a file under any of its names: by device and inode; a missing file by its directory
// and name.
using FileIdentity = std::string;

FileIdentity identity_of(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return "";
  const bool is_device = S_ISBLK(status.st_mode);  // it may have several nodes
  return is_device ? "device " + std::to_string(status.st_rdev)
                   : std::to_string(status.st_dev) + " " + std::to_string(status.st_ino);
}

FileIdentity identity_of(const std::string& path) { return target_of(path); }

// The files that the plans of one configuration have taken: a writable file is in one plan only.
class FileClaims {
 public:
  // `planned` outlives this object; `plan` is the same with its present path. Errors: another plan
  // has the file, and one of the two writes.
  Result<void> add(const ServiceNeeds& service, const FilePlan& planned, const FilePlan& plan,
                   const FileIdentity& identity) {
    const auto [begin, end] = claims_.equal_range(identity);
    for (auto at = begin; at != end; ++at) {
      const auto [other_service, other] = at->second;
      const bool writes = plan.is_writable || other->is_writable;
      if (!writes || !is_locked(plan) || !is_locked(*other)) continue;
      Error error = refused(service, plan);
      error.set_answer("it is the same file as %s for %s", other->path.c_str(),
                       where_it_is_said(*other_service, *other).c_str());
      return error.set_cure("name another file: a file has only one writer");
    }
    claims_.insert({identity, {&service, &planned}});
    return {};
  }

 private:
  std::multimap<FileIdentity, std::pair<const ServiceNeeds*, const FilePlan*>> claims_;
};

// Asks the service whether the content of its file may be overwritten.
Result<void> check_content(const ServiceNeeds& service, const FilePlan& plan, int fd) {
  auto checked = plan.keeper->check(fd);
  if (checked.ok()) return {};
  const Error& why = checked.error();
  return refused(service, plan).set_answer("%s", why.answer).set_cure("%s", why.cure);
}

Result<void> check_size(const ServiceNeeds& service, const FilePlan& plan,
                        const OpenedFile& opened) {
  const uint64_t bytes = opened.options.bytes;
  Error error = refused(service, plan);
  if (bytes < plan.bytes_min) {
    error.set_answer("it has %" PRIu64 " bytes, but %" PRIu64 " are needed", bytes, plan.bytes_min);
    return error.set_cure("make it longer (truncate -s %" PRIu64 " %s), or configure less",
                          plan.bytes_min, plan.path.c_str());
  }
  if (!plan.is_whole_blocks) return {};
  const uint32_t block = std::max(opened.options.alignment_bytes, kSectorBytes);
  BP_ASSERT(std::has_single_bit(block));
  if (bytes == 0) {
    return error.set_answer("it is empty")
        .set_cure("give it its full size: truncate -s 1G %s", plan.path.c_str());
  }
  if (bytes % block == 0) return {};
  error.set_answer("it has %" PRIu64 " bytes, not a multiple of its block size of %u", bytes,
                   block);
  return error.set_cure("extend the last block: truncate -s %%%u %s", block, plan.path.c_str());
}

// A file longer than RLIMIT_FSIZE cannot be written at its end.
Result<void> check_limit(const ServiceNeeds& service, const FilePlan& plan, uint64_t bytes) {
  rlimit limit = {};
  getrlimit(RLIMIT_FSIZE, &limit);
  const uint64_t needed = std::max(bytes, plan.bytes_max);
  if (!plan.is_writable || needed <= limit.rlim_cur) return {};
  Error error = refused(service, plan);
  error.set_answer("it may grow to %" PRIu64
                   " bytes, but this process may not write files beyond %" PRIu64,
                   needed, static_cast<uint64_t>(limit.rlim_cur));
  return error.set_cure("ulimit -f unlimited, or LimitFSIZE=infinity in its unit");
}

// Opens the file. If it is missing, it is created, or, if it may not be, checked whether it could
// be. `plan` is that of `need`, with its present path.
Result<OpenedFile> open_file(const ServiceNeeds& service, const FileNeed& need,
                             const FilePlan& plan, bool may_create, FileClaims* claims) {
  BP_ASSERT(defect_of(plan) == nullptr && need.shard < service.shards.size());
  struct stat before {};
  const bool is_there = stat(plan.path.c_str(), &before) == 0;
  const bool is_missing = !is_there && errno == ENOENT;
  if (is_missing && is_among_devices(plan.path)) return missing_device_error(service, plan);
  const bool creates = plan.create && may_create && is_missing;
  // For a block device O_EXCL means exclusive use: no file system has it mounted. With O_CREAT it
  // would mean that there is no such file.
  const bool is_taken = plan.is_writable && is_there && S_ISBLK(before.st_mode);
  const int flags = (plan.is_writable ? O_RDWR : O_RDONLY) | (creates ? O_CREAT : 0) |
                    (plan.is_direct ? O_DIRECT : 0) | (is_taken ? O_EXCL : 0) | O_CLOEXEC |
                    O_NOCTTY | O_NONBLOCK;
  OpenedFile opened;
  opened.shard = need.shard;
  const uint64_t begin_ns = monotonic_ns();
  do {
    opened.fd = Fd(open(plan.path.c_str(), flags, S_IRUSR | S_IWUSR));
  } while (!opened.fd.is_open() && errno == EBUSY && is_taken && try_again(begin_ns));
  if (!opened.fd.is_open()) {
    const bool would_be_created = errno == ENOENT && plan.create && !may_create;
    if (would_be_created && access(directory_of(plan.path).c_str(), W_OK | X_OK) == 0) {
      BP_TRY(claims->add(service, need.plan, plan, identity_of(plan.path)));
      BP_TRY(check_limit(service, plan, 0));
      return opened;
    }
    return open_error(service, plan, errno);
  }
  const int fd = opened.fd.number();
  bool is_device = false;
  if (!look_at(fd, &opened.options.bytes, &is_device)) return kind_error(service, plan);
  if (plan.is_writable && !is_device && is_among_devices(plan.path)) {
    return refused(service, plan)
        .set_answer("it is a file, not a device, and is gone at the next boot")
        .set_cure("remove it (rm %s) and attach the device, or name a file outside /dev",
                  plan.path.c_str());
  }
  set_blocking(fd, true);  // non-blocking until here: a pipe would block the boot
  opened.options.name = file_name(service.name, plan);
  opened.options.fd = fd;
  opened.options.operation_count_max = plan.operation_count_max;
  opened.options.tells_extents = plan.tells_extents;
  if (plan.is_direct) opened.options.alignment_bytes = direct_alignment_bytes(fd, is_device);
  BP_TRY(claims->add(service, need.plan, plan, identity_of(fd)));
  if (is_locked(plan)) BP_TRY(lock(service, plan, fd));
  if (plan.keeper != nullptr) BP_TRY(check_content(service, plan, fd));
  BP_TRY(check_size(service, plan, opened));
  if (!is_device) BP_TRY(check_limit(service, plan, opened.options.bytes));
  if (plan.is_renamed && access(directory_of(plan.path).c_str(), W_OK | X_OK) != 0) {
    return refused(service, plan)
        .set_answer("its directory, where it is renamed, is not writable")
        .set_cure("chown the directory to the user of this process, or name another one");
  }
  if (plan.is_polled) {
    auto limits = polled_limits_of_file(fd);
    if (!limits.ok()) {
      const Error& why = limits.error();
      return refused(service, plan).set_answer("%s", why.answer).set_cure("%s", why.cure);
    }
    opened.options.polled = limits.value();
  }
  return opened;
}

Result<OpenedFile> find_and_open_file(const ServiceNeeds& service, const FileNeed& need,
                                      bool may_create, FileClaims* claims) {
  FilePlan found = need.plan;
  if (need.plan.keeper != nullptr) {
    BP_TRY_ASSIGN(found.path, need.plan.keeper->path());
  }
  if (need.plan.maker == nullptr) return open_file(service, need, found, may_create, claims);
  BP_TRY_ASSIGN(auto device, need.plan.maker->make());
  found.path = device->path();
  auto opened = open_file(service, need, found, may_create, claims);
  if (opened.ok()) opened.value().device = std::move(device);
  return opened;
}

bool is_told(const std::vector<Error>& problems, const Error& error) {
  const auto is_it = [&error](const Error& each) {
    return std::strcmp(each.doing, error.doing) == 0 &&
           std::strcmp(each.answer, error.answer) == 0 && std::strcmp(each.cure, error.cure) == 0;
  };
  return std::any_of(problems.begin(), problems.end(), is_it);
}

}  // namespace

std::string file_name(const std::string& service, const FilePlan& plan) {
  return service + "." + plan.name;
}

const char* defect_of(const FilePlan& plan) noexcept {
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (plan.name.empty() || plan.name.size() > 31 ||
      !std::all_of(plan.name.begin(), plan.name.end(), is_good)) {
    return "a file's name has 1..31 characters of a-z, 0-9 and _";
  }
  if (plan.create && !plan.is_writable) return "a file that is created must be writable";
  if (plan.is_polled && !plan.is_direct) return "a file that is polled must be direct";
  if (plan.operation_count_max == 0 || plan.operation_count_max > kFileOperationCountMax) {
    return "a file has 1..1024 operations in flight";
  }
  return nullptr;
}

std::vector<OpenedFile> open_files(const std::vector<ServiceNeeds>& services, bool may_create,
                                   std::vector<Error>* problems) {
  std::vector<OpenedFile> all;
  FileClaims claims;
  for (const ServiceNeeds& service : services) {
    std::unordered_map<std::string_view, const CounterSet*> counters;
    for (const CounterSet& set : service.counters) {
      if (set.name == kFileCounters) counters[set.instance] = &set;
    }
    for (const FileNeed& need : service.files) {
      auto opened = find_and_open_file(service, need, may_create, &claims);
      if (opened.ok()) {
        all.push_back(opened.take());
        all.back().counters = counters[need.plan.name];
        BP_ASSERT(all.back().counters != nullptr);  // ServicePlan::file plans them
      } else if (!is_told(*problems, opened.error())) {
        problems->push_back(opened.error());
      }
    }
  }
  return all;
}

}  // namespace bedplate
