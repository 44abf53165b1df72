// The files of services: planned, opened before anything is taken, closed after the shards.
// Services use FilePlan; the rest is the runtime's. Threads: the main thread, before the seal (it
// allocates).
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

// Answers of a service about its file that its plan cannot give yet. It outlives the plan.
class FileKeeper {
 public:
  virtual ~FileKeeper() = default;
  // The path of the file now. Called each time before it is opened. Errors: why it is not known.
  virtual Result<std::string> path() = 0;
  // Refuses a file whose content must not be written over. Called once the file is locked, before
  // anything is written. Errors: the answer and the cure; the caller adds what was being done.
  virtual Result<void> check(int fd) = 0;
};

// A block device that is there for as long as this is.
class MadeDevice {
 public:
  MadeDevice() = default;
  MadeDevice(const MadeDevice&) = delete;
  MadeDevice& operator=(const MadeDevice&) = delete;
  // Its file is closed; the kernel may close it a while after. Errors are logged.
  virtual ~MadeDevice() = default;
  virtual const std::string& path() const noexcept = 0;
};

// Makes a device before it is opened. A service has it for one file, or for several on the same
// device. It outlives them.
class DeviceMaker {
 public:
  virtual ~DeviceMaker() = default;
  // The device, which may be there for another file already.
  // Errors: why it cannot be had. Threads: the main thread, as root, if it is root.
  virtual Result<std::shared_ptr<MadeDevice>> make() = 0;
};

// A file that a service wants to have open (ServicePlan::file).
struct FilePlan {
  std::string name;  // among the files of the service: 1 to 31 bytes of a-z, 0-9 and _
  std::string path;  // from the root; a file, or a block device
  std::string key;   // the key of its table that says the path; may be empty
  bool is_writable = false;
  bool is_created = false;  // if it is missing: empty, for its owner alone; needs is_writable
  bool is_direct = false;   // past the page cache (O_DIRECT): File::alignment_bytes
  // A writable file is always locked (flock(2)), so that it has one writer, in this configuration
  // and beyond it; a device is refused while it is mounted. With this a file that is not writable
  // is locked, too: then it has only readers.
  bool excludes_writers = false;
  bool is_whole_blocks = false;  // refused unless it is a multiple of 512 and of its alignment
  bool tells_extents = false;    // FileAction::kExtents may be asked of it
  // Its reads and writes are polled (transport/uring/polled_files.h); refused if its drive is not
  // polled. Needs is_direct.
  bool is_polled = false;
  uint64_t bytes_min = 0;             // refused when it is shorter
  uint32_t operation_count_max = 32;  // in flight at once, 1 to 1024; more wait
  // If not nullptr, it makes the device, which is opened by the device's own path; `path` is for
  // people.
  DeviceMaker* maker = nullptr;
  // nullptr: it lies at `path`, and whatever is in it may be written over.
  FileKeeper* keeper = nullptr;
  // How long it may grow, if that is known. Refused if this process may not have a file of so many
  // bytes, like a file that is so long already.
  uint64_t bytes_max = 0;
  // The service gives it other names in its directory while it runs.
  bool is_renamed = false;
};

struct FileNeed {
  uint32_t shard = 0;
  FilePlan plan;
};

// The name of its counters among those of its service; the instance is the file's name.
inline constexpr const char* kFileCounters = "files";

// The fault of a plan; nullptr: none.
const char* defect_of(const FilePlan& plan) noexcept;

// Its name among the files of a shard.
std::string file_name(const std::string& service, const FilePlan& plan);

// A file that is open; its options lack the counters.
struct OpenedFile {
  std::shared_ptr<MadeDevice> device;  // goes after `fd`; nullptr: none was made
  Fd fd;
  const CounterSet* counters = nullptr;  // among the needs of its service
  uint32_t shard = 0;
  FileOptions options;
};

// Opens the files that `services` have planned. Appends each problem to `problems`, with the path,
// the system's answer and a cure; once, however many files it stands in the way of. Unless
// `may_create`, no file is created: the directory of a missing one is looked at instead. Devices
// are made. Ownership: the needs outlive what is returned.
std::vector<OpenedFile> open_files(const std::vector<ServiceNeeds>& services, bool may_create,
                                   std::vector<Error>* problems);

}  // namespace bedplate
