// Files of one shard: read, write, sync, take and give back room, each completing by a callback.
//
// The files are opened at boot (apps/services/planned_files.h). Two backends carry the operations
// out: io_uring, in the ring of the shard's sockets, with the files and the pool registered; and,
// without io_uring, a thread beside the shard (transport/files/file_thread.h). The contract is one.
// Reads and writes of polled files go to a third (transport/uring/polled_files.h). Data goes
// straight between the file and the caller's memory. Nothing is copied, cached or allocated here.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "alloc/heap_owner.h"
#include "platform/counter.h"
#include "platform/tail_queue.h"
#include "transport/files/polled_limits.h"
#include "transport/registration.h"

namespace bedplate {

class CounterTable;

class File;
class Files;

enum class FileAction : uint8_t {
  kRead,         // ends at the end of the file; `result` says how many bytes there were
  kWrite,        // all bytes, or an error
  kSync,         // what was written is on the medium, and the file's times, too (fsync(2))
  kSyncData,     // what was written, and what it takes to read it again (fdatasync(2))
  kAllocate,     // takes room for the range; the file grows to hold it (fallocate(2))
  kWriteZeroes,  // the range reads as zeros, its room stays taken; the file grows to hold it
  kDiscard,      // gives the room of the range back: it reads as zeros; the file's size stays
  kExtents,      // which parts of the range have data, and which are holes (lseek(2))
};

// A part of a file; it begins where the one before it ends.
struct FileExtent {
  uint64_t bytes = 0;
  bool has_data = false;  // no: a hole, which reads as zeros
};

// One operation. The caller fills the first part and keeps it, and the memory that it points at,
// untouched until `completed` is called.
struct FileOperation {
  FileAction action = FileAction::kRead;
  bool is_durable = false;        // kWrite: as with kSyncData behind it, for this alone (RWF_DSYNC)
  uint32_t extent_count_max = 0;  // kExtents: how many there is memory for
  // kRead, kWrite: any; memory of the pool is the cheapest. kExtents: FileExtent[].
  void* memory = nullptr;
  uint64_t bytes = 0;   // all but kSync and kSyncData
  uint64_t offset = 0;  // the same, in the file
  // Called on the shard, never from within begin(). `result`: how many bytes a read or write moved;
  // how many extents were told, which may end before the range does; 0 for the others; negative:
  // -errno (of a write, some of it may have been written).
  // EOPNOTSUPP: the file system lacks the action. ECANCELED: the shard stops, and it was not begun.
  void (*completed)(void* context, int64_t result) noexcept = nullptr;
  void* context = nullptr;

  bool is_in_flight = false;  // the backend's, as is what follows; to be read by anybody
  bool is_polled = false;     // it is with the backend of these
  HeapOwner asker = {};       // who allocated when it began
  uint64_t moved_bytes = 0;
  int64_t answer = 0;  // the kernel's, from another thread
  File* file = nullptr;
  FileOperation* next = nullptr;
};

// Written by the shard, read by `bedplate stats`.
struct FileCounters {
  Counter operations;  // that have ended, also with an error
  Counter read_bytes;
  Counter written_bytes;
  Counter errors;
  Counter polled;         // of the operations, those that the polled ring has ended
  Counter polling_ended;  // 1: the kernel has refused to poll it, which is not asked again
};
void describe(CounterTable& table, FileCounters& counters);

struct FileOptions {
  std::string name;
  int fd = -1;  // the opener's, open until Files::close has returned true
  // How many operations the kernel is given at once; more wait for their turn, in order.
  uint32_t operation_count_max = 1;
  uint64_t bytes = 0;  // how long it is
  // Not 1: the file is opened with O_DIRECT, and memory, offset and bytes are multiples of it.
  uint32_t alignment_bytes = 1;
  bool tells_extents = false;  // kExtents may be asked of it
  // Reads and writes within these limits are polled, if Files::open has a backend for that. Not
  // none: the file is opened with O_DIRECT.
  PolledLimits polled = {};
  FileCounters* counters = nullptr;
};

// Threads: the shard's. Ownership: that of Files, whose life it has.
class File {
 public:
  // Starts `operation`. Operations that are in flight at the same time take place in any order; a
  // sync covers the operations that had completed before it began. After Files::close() nothing
  // happens, and `completed` is not called. Requires: it is not in flight and has a callback; it
  // ends below 2^63.
  // Cost: with io_uring none of its own (it goes with the shard's next io_uring_enter); with the
  // thread a doorbell.
  void begin(FileOperation& operation) noexcept;

  const std::string& name() const noexcept { return options_.name; }
  // How long it was when it was opened; of a block device, how much it has.
  uint64_t bytes() const noexcept { return options_.bytes; }
  uint32_t alignment_bytes() const noexcept { return options_.alignment_bytes; }
  bool is_polled() const noexcept { return !options_.polled.is_none(); }

  // The backend's: its descriptor, and its number among the files of the shard.
  int fd() const noexcept { return options_.fd; }
  uint32_t index() const noexcept { return index_; }

 private:
  friend class Files;
  File(FileOptions options, Files& files, uint32_t index)
      : options_(std::move(options)), files_(files), index_(index) {}

  FileOptions options_;
  Files& files_;
  uint32_t index_;
  uint32_t in_flight_count_ = 0;
  TailQueue<&FileOperation::next> waiting_;
};

// A backend carries operations out. For those that write a backend; services use File.
class FileBackend {
 public:
  virtual ~FileBackend() = default;
  // Before the seal, on the shard's thread. `keys`: of the pool, if the backend is a device.
  // `operation_count_max`: of all files together. Errors: the system's.
  virtual Result<void> open(Files& files, const KeyTable& keys, uint32_t operation_count_max) = 0;
  // Has the kernel do the rest of the operation; Files::handle is told of the outcome, later. It is
  // given kExtents when Files::open was told so.
  virtual void issue(FileOperation& operation) noexcept = 0;
  // Waits until at least one issued operation has an outcome, and tells Files::handle of it.
  // Returns false when there was none by `deadline_ns` (monotonic). Nothing else happens in it.
  // Requires: something is issued.
  virtual bool wait(uint64_t deadline_ns) noexcept = 0;
  // The end: nothing is issued any more. Does nothing without open().
  // `leaves_operations`: the kernel has some all the same. Nobody is told of their outcome; what
  // they use, this object included, stays until the process ends.
  virtual void close(bool leaves_operations) noexcept = 0;
};

// Threads: that of the shard, from open() on.
class Files {
 public:
  Files() noexcept = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  // Requires: closed, if it was opened.
  ~Files() = default;

  // Before the seal. Requires: called once; each of `files` has its fd, its counters and at least
  // one operation; `backend` and `keys` outlive close(). `searcher`: carries out kExtents instead,
  // of files that tell extents, where `backend` cannot; nullptr: it can, or there are none.
  // `polled`: carries out what the limits of polled files take; nullptr: none is polled.
  // Errors: the backends'.
  Result<void> open(std::span<const FileOptions> files, FileBackend& backend, const KeyTable& keys,
                    FileBackend* searcher = nullptr, FileBackend* polled = nullptr);
  // The shard's loop has ended. Operations that wait for their turn end with ECANCELED. This waits
  // for those that the kernel has; each is told its outcome. From then on begin() does nothing.
  // Returns false when the kernel has not answered within `patience_ns`, such as a file system
  // whose server is gone: the log names the files, and the operations are left to the process's
  // end. Their memory, this object and its backend must stay until then.
  // A second call, and one without open(), does nothing.
  bool close(uint64_t patience_ns) noexcept;

  const std::deque<File>& all() const noexcept { return files_; }
  // Invariants, looked at before and after each change: 1. No file has more operations in flight
  // than it may have, and some wait only while it has as many. 2. issued_count_ is their sum, and
  // searched_count_ and polled_count_ together are no more.
  // 3. A waiting operation is in flight for its owner, has not begun, and is of this file.
  bool is_valid() const noexcept;

  // nullptr: there is none of this name.
  File* find(std::string_view name) noexcept;

  // The backend's: the kernel has answered `result`, bytes or -errno.
  void handle(FileOperation& operation, int64_t result) noexcept;

 private:
  friend class File;
  void begin(FileOperation& operation) noexcept;
  void issue(FileOperation& operation) noexcept;
  bool may_be_polled(const FileOperation& operation) const noexcept;
  void hand_over(FileOperation& operation, bool is_polled) noexcept;
  void finish(FileOperation& operation, int64_t result) noexcept;
  uint32_t ordinary_count() const noexcept {
    return issued_count_ - searched_count_ - polled_count_;
  }
  FileBackend& backend_of(const FileOperation& operation) noexcept {
    if (operation.is_polled) return *polled_;
    return operation.action == FileAction::kExtents && searcher_ != nullptr ? *searcher_
                                                                            : *backend_;
  }

  std::deque<File> files_;  // at the same address for ever
  FileBackend* backend_ = nullptr;
  FileBackend* searcher_ = nullptr;
  FileBackend* polled_ = nullptr;
  uint32_t issued_count_ = 0;
  uint32_t searched_count_ = 0;  // of these, by searcher_
  uint32_t polled_count_ = 0;    // by polled_
  bool is_closed_ = false;
};

}  // namespace bedplate
