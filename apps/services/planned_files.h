// The files of services: the runtime opens the planned files before anything is taken, and closes
// them after the shards. Services use FilePlan, FileKeeper and DeviceMaker; the rest is the
// runtime's. Threads: the main thread, before the seal (it allocates).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/counter_table.h"
#include "platform/file.h"
#include "transport/files/files.h"

namespace bedplate {

struct ServiceNeeds;

// Gives facts of a service's file that its plan does not know yet. It outlives the plan.
class FileKeeper {
 public:
  virtual ~FileKeeper() = default;
  // The present path of the file. Called before each opening. Errors: why the path is not known.
  virtual Result<std::string> path() = 0;
  // Refuses a file whose content must not be overwritten. Called after the file is locked (if it
  // is), before anything is written. Errors: the answer and the cure; the caller sets `doing`.
  virtual Result<void> check(int fd) = 0;
};

// A block device that exists as long as this object.
class MadeDevice {
 public:
  MadeDevice() = default;
  MadeDevice(const MadeDevice&) = delete;
  MadeDevice& operator=(const MadeDevice&) = delete;
  // Called after the file is closed; the kernel may finish the close a while later. Errors are
  // logged.
  virtual ~MadeDevice() = default;
  virtual const std::string& path() const noexcept = 0;
};

// Makes a device before it is opened. A service has one for each file, or for several files on the
// same device. It outlives the files.
class DeviceMaker {
 public:
  virtual ~DeviceMaker() = default;
  // The device; it may exist already, for another file. Errors: why it cannot be made. Threads: the
  // main thread, before root is given up.
  virtual Result<std::shared_ptr<MadeDevice>> make() = 0;
};

// A file that a service wants to have open (ServicePlan::file).
struct FilePlan {
  std::string name;  // among the files of the service: 1 to 31 bytes of a-z, 0-9 and _
  std::string path;  // from the root; a file, or a block device
  std::string key;   // the configuration key of the path; may be empty
  bool is_writable = false;
  bool create = false;     // if missing: made empty, for its owner alone; needs is_writable
  bool is_direct = false;  // past the page cache (O_DIRECT): File::alignment_bytes
  // A writable file is always locked (flock(2)), so that it has one writer, in this configuration
  // and outside it; a writable device is refused while it is mounted. With excludes_writers a
  // read-only file is locked, too: it then has only readers.
  bool excludes_writers = false;
  // The file is refused if it is empty, or no multiple of 512 bytes and of its alignment.
  bool is_whole_blocks = false;
  bool tells_extents = false;  // allows FileAction::kExtents on it
  // Its reads and writes are polled (transport/uring/polled_files.h). The file is refused if its
  // drive has no polled queues. Needs is_direct.
  bool is_polled = false;
  uint64_t bytes_min = 0;             // a shorter file is refused
  uint32_t operation_count_max = 32;  // in flight at once, 1 to 1024; others wait
  // If not nullptr, it makes the device. The runtime opens the device by MadeDevice::path(), and
  // names it so; `path` then appears only in the error of another plan of the same device.
  DeviceMaker* maker = nullptr;
  // nullptr: the file is at `path`, and its content may be overwritten. Otherwise
  // FileKeeper::path() replaces `path`.
  FileKeeper* keeper = nullptr;
  // The largest size that the file may reach; 0: not known. A writable file, other than a device,
  // is refused if this size or its present size is over this process's limit (RLIMIT_FSIZE).
  uint64_t bytes_max = 0;
  // The service renames the file within its directory while it runs. The file is refused if this
  // process cannot write to the directory.
  bool is_renamed = false;
};

struct FileNeed {
  uint32_t shard = 0;
  FilePlan plan;
};

// The name of a file's counters in its service; the instance is the file's name.
inline constexpr const char* kFileCounters = "files";

// The service's defect in a plan, other than in its path; nullptr: none.
const char* defect_of(const FilePlan& plan) noexcept;

// The file's name among the files of a shard: "SERVICE.NAME".
std::string file_name(const std::string& service, const FilePlan& plan);

// An open file; its options lack the counters.
struct OpenedFile {
  std::shared_ptr<MadeDevice> device;  // destroyed after `fd` is closed; nullptr: none
  Fd fd;  // not open: the file is missing, and must not be created (open_files)
  const CounterSet* counters = nullptr;  // among the needs of its service
  uint32_t shard = 0;
  FileOptions options;
};

// Opens the files that `services` have planned. Appends each problem to `problems`, with the path,
// the system's answer and a cure; a problem of several files is reported once. A file with a
// problem is not in the result. Without `may_create`, no file is created: the directory of a
// missing file is checked instead. Devices are made in both cases. Ownership: the needs outlive the
// result.
std::vector<OpenedFile> open_files(const std::vector<ServiceNeeds>& services, bool may_create,
                                   std::vector<Error>* problems);

}  // namespace bedplate
