#include "apps/boot/planned_files.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "apps/boot/service_plan.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint32_t kFileOperationCountMax = 1024;
// Where neither the file system nor the device says what direct access takes.
constexpr uint32_t kUsualAlignmentBytes = 4096;
constexpr uint32_t kSectorBytes = 512;

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

// "journal in [store]": the key that says the path; without one the table.
std::string where_it_is_said(const ServiceNeeds& service, const FilePlan& plan) {
  return plan.key.empty() ? "[" + service.name + "]" : plan.key + " in [" + service.name + "]";
}

Error refused(const ServiceNeeds& service, const FilePlan& plan) {
  Error error;
  error.set_doing("opening %s for %s", plan.path.c_str(), where_it_is_said(service, plan).c_str());
  return error;
}

Error kind_error(const ServiceNeeds& service, const FilePlan& plan) {
  return refused(service, plan)
      .set_answer("it is neither a file nor a block device")
      .set_cure("name one of these");
}

Error open_error(const ServiceNeeds& service, const FilePlan& plan, int number) {
  Error error = refused(service, plan);
  if (number == EINVAL && plan.is_direct) {
    // A pipe or a terminal has no direct access either, and no file system to be blamed.
    struct stat status {};
    if (stat(plan.path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
        !S_ISBLK(status.st_mode)) {
      return kind_error(service, plan);
    }
    error.set_answer("its file system has no direct access (O_DIRECT)");
    return error.set_cure("put it on one that has it (ext4, xfs), or have it opened without");
  }
  error.set_answer_errno(number);
  switch (number) {
    case ENOENT:
      return error.set_cure(plan.is_created ? "create its directory, or name another file"
                                            : "create it, or name another file");
    case EACCES:
    case EPERM:
    case EROFS:
      return error.set_cure("run as its owner or as root, and see that its file system may be "
                            "%s",
                            plan.is_writable ? "written to" : "read");
    case EISDIR: return error.set_cure("name a file, or a block device");
    case EBUSY: return error.set_cure("unmount it, and end what else has it open (lsblk, fuser)");
    case ETXTBSY: return error.set_cure("name another file: this one is a program that runs");
    default: return error.set_cure("see what stands in its way, or name another file");
  }
}

// How much there is; of what is neither a file nor a block device nothing.
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

// Which process holds the lock on `status`'s file; 0: one that /proc/locks does not tell.
long holder_of(const struct stat& status) {
  std::ifstream locks("/proc/locks");
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x:%lu", major(status.st_dev), minor(status.st_dev),
                static_cast<unsigned long>(status.st_ino));
  // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"
  std::string line;
  while (std::getline(locks, line)) {
    std::istringstream words(line);
    std::string number, kind, advice, mode, place;
    long pid = 0;
    words >> number >> kind >> advice >> mode >> pid >> place;
    if (kind == "FLOCK" && place == wanted && pid > 0) return pid;
  }
  return 0;
}

// The kernel keeps what a ring has registered until it has taken the ring down, a while after the
// process has ended: its locks and claims, too. So much later they are somebody else's.
constexpr uint64_t kRingEndNs = 2 * kNsPerSecond;

bool is_gone(long pid) noexcept {
  return pid == 0 || (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
}

// Waits a moment. Returns no once the time is up.
bool try_again(uint64_t begin_ns) noexcept {
  const timespec moment = {.tv_sec = 0, .tv_nsec = 5 * static_cast<long>(kNsPerMs)};
  nanosleep(&moment, nullptr);
  return monotonic_ns() - begin_ns < kRingEndNs;
}

// One writer, or any number of readers.
Result<void> lock(const ServiceNeeds& service, const FilePlan& plan, int fd) {
  Error error = refused(service, plan);
  struct stat status {};
  if (fstat(fd, &status) != 0) return error.set_answer_errno(errno);
  const uint64_t begin_ns = monotonic_ns();
  long pid = 0;
  do {
    if (flock(fd, (plan.is_writable ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK) {
      return error.set_answer_errno(errno).set_cure("put it on a file system that has flock(2)");
    }
    pid = holder_of(status);
  } while (is_gone(pid) && try_again(begin_ns));
  if (pid == getpid()) {
    return error.set_answer("this configuration names it twice").set_cure("name another file");
  }
  if (pid == 0) {
    error.set_answer("another process has locked it");
  } else {
    error.set_answer("process %ld has locked it", pid);
  }
  return error.set_cure("stop that one first, or name another file: %s",
                        plan.is_writable ? "it has one writer" : "one that is written to");
}

Result<void> check_size(const ServiceNeeds& service, const FilePlan& plan,
                        const OpenedFile& opened) {
  const uint64_t bytes = opened.options.bytes;
  Error error = refused(service, plan);
  if (bytes < plan.bytes_min) {
    error.set_answer("it has %" PRIu64 " bytes, and %" PRIu64 " are asked for", bytes,
                     plan.bytes_min);
    return error.set_cure("make it longer (truncate -s %" PRIu64 " %s), or ask for less",
                          plan.bytes_min, plan.path.c_str());
  }
  if (!plan.is_whole_blocks) return {};
  const uint32_t block = std::max(opened.options.alignment_bytes, kSectorBytes);
  BP_ASSERT(std::has_single_bit(block));
  if (bytes == 0) {
    return error.set_answer("it is empty")
        .set_cure("make it as long as it is to be: truncate -s 1G %s", plan.path.c_str());
  }
  if (bytes % block == 0) return {};
  error.set_answer("it has %" PRIu64 " bytes, no multiple of its blocks of %u", bytes, block);
  return error.set_cure("fill the last one up: truncate -s %%%u %s", block, plan.path.c_str());
}

// Opens it, or, where it may not be created, looks whether it could be.
Result<OpenedFile> open_file(const ServiceNeeds& service, const FileNeed& need, bool may_create) {
  const FilePlan& plan = need.plan;
  BP_ASSERT(defect_of(plan) == nullptr && need.shard < service.shards.size());
  const bool creates = plan.is_created && may_create;
  struct stat before {};
  // Of a device it means that nobody else, no file system above all, has it so.
  const bool claims = plan.is_exclusive && plan.is_writable &&
                      stat(plan.path.c_str(), &before) == 0 && S_ISBLK(before.st_mode);
  const int flags = (plan.is_writable ? O_RDWR : O_RDONLY) | (creates ? O_CREAT : 0) |
                    (plan.is_direct ? O_DIRECT : 0) | (claims ? O_EXCL : 0) | O_CLOEXEC | O_NOCTTY |
                    O_NONBLOCK;
  OpenedFile opened;
  for (const CounterSet& set : service.counters) {
    if (set.name == kFileCounters && set.instance == plan.name) opened.counters = &set;
  }
  BP_ASSERT(opened.counters != nullptr);  // ServicePlan::file plans them
  opened.shard = need.shard;
  const uint64_t begin_ns = monotonic_ns();
  do {
    opened.fd = Fd(open(plan.path.c_str(), flags, S_IRUSR | S_IWUSR));
  } while (!opened.fd.is_open() && errno == EBUSY && claims && try_again(begin_ns));
  if (!opened.fd.is_open()) {
    const bool would_be_created = errno == ENOENT && plan.is_created && !may_create;
    if (would_be_created && access(directory_of(plan.path).c_str(), W_OK | X_OK) == 0) {
      return opened;
    }
    return open_error(service, plan, errno);
  }
  const int fd = opened.fd.number();
  bool is_device = false;
  if (!look_at(fd, &opened.options.bytes, &is_device)) return kind_error(service, plan);
  set_blocking(fd, true);  // a pipe or a terminal in its place would have held the boot
  opened.options.name = file_name(service.name, plan);
  opened.options.fd = fd;
  opened.options.operation_count_max = plan.operation_count_max;
  opened.options.tells_extents = plan.tells_extents;
  if (plan.is_direct) opened.options.alignment_bytes = direct_alignment_bytes(fd, is_device);
  if (plan.is_exclusive) BP_TRY(lock(service, plan, fd));
  BP_TRY(check_size(service, plan, opened));
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

Result<OpenedFile> make_and_open_file(const ServiceNeeds& service, const FileNeed& need,
                                      bool may_create) {
  if (need.plan.maker == nullptr) return open_file(service, need, may_create);
  auto device = need.plan.maker->make();
  BP_TRY(device);
  FileNeed made = need;
  made.plan.path = device.value()->path();
  auto opened = open_file(service, made, may_create);
  if (opened.ok()) opened.value().device = device.take();
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

void describe(CounterTable& table, FileCounters& counters) {
  table.counter("file_operations", counters.operations, "operations",
                "Operations on the file that have ended.");
  table.counter("file_read_bytes", counters.read_bytes, "bytes", "Bytes read from the file.");
  table.counter("file_written_bytes", counters.written_bytes, "bytes",
                "Bytes written to the file.");
  table.counter("file_polled", counters.polled, "operations",
                "Operations on the file that were ended by polling.");
  table
      .boolean("file_polling_ended", counters.polling_ended,
               "Whether the kernel has refused to poll its drive, though that is planned.")
      .sign_from(1,
                 "the kernel no longer polls its drive, and all goes by the ordinary ring: look at "
                 "queue/io_poll in /sys/block, and start anew, or leave \"polled\" out");
  table
      .counter("file_errors", counters.errors, "operations",
               "Operations on the file that ended with an error.")
      .sign_as_it_grows("operations on it fail, {file_errors} by now: look whether its file system "
                        "is full, and what the kernel's log says of its drive");
}

std::string file_name(const std::string& service, const FilePlan& plan) {
  return service + "." + plan.name;
}

const char* defect_of(const FilePlan& plan) noexcept {
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (plan.name.empty() || plan.name.size() > 31 ||
      !std::all_of(plan.name.begin(), plan.name.end(), is_good)) {
    return "a file's name is 1..31 of a-z, 0-9 and _";
  }
  if (plan.is_created && !plan.is_writable) return "a file that is created is writable";
  if (plan.is_polled && !plan.is_direct) return "a file that is polled is direct";
  if (plan.operation_count_max == 0 || plan.operation_count_max > kFileOperationCountMax) {
    return "a file has 1..1024 operations in flight";
  }
  return nullptr;
}

std::vector<OpenedFile> open_files(const std::vector<ServiceNeeds>& services, bool may_create,
                                   std::vector<Error>* problems) {
  std::vector<OpenedFile> all;
  for (const ServiceNeeds& service : services) {
    for (const FileNeed& need : service.files) {
      auto opened = make_and_open_file(service, need, may_create);
      if (opened.ok()) {
        all.push_back(opened.take());
      } else if (!is_told(*problems, opened.error())) {
        problems->push_back(opened.error());
      }
    }
  }
  return all;
}

}  // namespace bedplate
