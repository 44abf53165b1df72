// Files of one shard: read, write, sync, allocate and give back space, each completing by a
// callback.
//
// The files are opened at boot (apps/services/planned_files.h). Two backends carry the operations
// out under the same contract: io_uring, in the ring of the shard's sockets, with the files and the
// pool registered; and, without io_uring, a thread beside the shard
// (transport/files/file_thread.h). A third backend carries out reads and writes of polled files
// (transport/uring/polled_files.h). Data moves straight between the file and the caller's memory.
// Nothing is copied, cached or allocated here.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "alloc/heap_owner.h"
#include "platform/counter.h"
#include "platform/tail_queue.h"
#include "platform/thread_owner.h"
#include "transport/files/polled_limits.h"
#include "transport/registration.h"

namespace bedplate {

class CounterTable;

class File;
class Files;

enum class FileAction : uint8_t {
  kRead,         // all bytes, or those up to the end of the file; `result` is their number
  kWrite,        // all bytes, or an error
  kSync,         // earlier writes reach the medium, and so do the file's times (fsync(2))
  kSyncData,     // earlier writes, and what it takes to read them again (fdatasync(2))
  kAllocate,     // allocates the range; the file grows to hold it (fallocate(2))
  kWriteZeroes,  // the range reads as zeros and stays allocated; the file grows to hold it
  kDiscard,      // deallocates the range: it reads as zeros; the file's size stays
  kExtents,      // lists the parts of the range that have data, and the holes (lseek(2))
};

// A part of a file; it begins where the previous extent ends.
struct FileExtent {
  uint64_t bytes = 0;
  bool has_data = false;  // false: a hole, which reads as zeros
};

// One operation. The caller fills in the first part and keeps it, and the memory that it points at,
// unchanged until `completed` is called.
struct FileOperation {
  FileAction action = FileAction::kRead;
  bool is_durable = false;        // kWrite: this write is synced as by kSyncData (RWF_DSYNC)
  uint32_t extent_count_max = 0;  // kExtents: how many fit into `memory`
  // kRead, kWrite: any; memory of the pool is the cheapest. kExtents: FileExtent[].
  void* memory = nullptr;
  uint64_t bytes = 0;   // for all but kSync and kSyncData
  uint64_t offset = 0;  // in the file; for the same actions
  // Called on the shard, never from within begin(). `result`: a read or write: the bytes moved;
  // kExtents: the number of extents, which may end before the range does; the others: 0; on an
  // error: -errno (part of a write may have been written). EOPNOTSUPP: the file system lacks the
  // action. ECANCELED: the shard stops, and the operation never began.
  void (*completed)(void* context, int64_t result) noexcept = nullptr;
  void* context = nullptr;

  // The fields below are for Files and its backends; the owner may read is_in_flight.
  bool is_in_flight = false;
  bool is_polled = false;  // the polled backend has it
  HeapOwner asker = {};    // the heap owner when it began
  uint64_t moved_bytes = 0;
  int64_t answer = 0;  // the kernel's, from another thread
  File* file = nullptr;
  FileOperation* next = nullptr;
};

// The shard writes them, `bedplate stats` reads them.
struct FileCounters {
  Counter operations;  // that ended, with or without an error
  Counter read_bytes;
  Counter written_bytes;
  Counter errors;
  Counter polled;         // operations that the polled ring ended
  Counter polling_ended;  // 1: the kernel refused to poll this file, and is not asked again
};
void describe(CounterTable& table, FileCounters& counters);

struct FileOptions {
  std::string name;
  int fd = -1;  // the opener's, open until Files::close has returned true
  // How many operations the kernel has at once; more wait for their turn, in order.
  uint32_t operation_count_max = 1;
  uint64_t bytes = 0;  // its length
  // If not 1: the file is opened with O_DIRECT. Then memory, offset and bytes of each read and
  // write are multiples of this.
  uint32_t alignment_bytes = 1;
  bool tells_extents = false;  // kExtents is allowed
  // Reads and writes within these limits are polled, if Files::open has a backend for that; durable
  // writes never are. Requires, if set: the file is opened with O_DIRECT.
  PolledLimits polled = {};
  FileCounters* counters = nullptr;
};

// Threads: the shard's. Ownership: Files', for the lifetime of Files.
class File {
 public:
  // Starts `operation`. Operations in flight at the same time take place in any order; a sync
  // covers the operations that had completed before it began. After Files::close() it does nothing,
  // and `completed` is not called. Requires: it is not in flight and has a callback; its range ends
  // below 2^63. Cost: with io_uring no system call of its own (it goes with the shard's next
  // io_uring_enter); with the thread a ring of the doorbell.
  void begin(FileOperation& operation) noexcept;

  const std::string& name() const noexcept { return options_.name; }
  // Its length when it was opened; for a block device, its capacity.
  uint64_t bytes() const noexcept { return options_.bytes; }
  uint32_t alignment_bytes() const noexcept { return options_.alignment_bytes; }
  bool tells_extents() const noexcept { return options_.tells_extents; }
  bool is_polled() const noexcept { return !options_.polled.is_none(); }

  // For the backend: the descriptor, and the file's index among the shard's files.
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

// A backend carries out operations. Only backends use this; services use File.
class FileBackend {
 public:
  virtual ~FileBackend() = default;
  // Before the seal, on the shard's thread. `keys`: the pool's, if the backend is a device.
  // `operation_count_max`: for all files together. Errors: the system's.
  virtual Result<void> open(Files& files, const KeyTable& keys, uint32_t operation_count_max) = 0;
  // Gives the rest of the operation to the kernel; reports the outcome to Files::handle, later.
  // Gets kExtents only if Files::open said that this backend takes it.
  virtual void issue(FileOperation& operation) noexcept = 0;
  // Waits until at least one issued operation has an outcome, and reports it to Files::handle.
  // Returns false if there was none by `deadline_ns` (monotonic). Does nothing else. Requires: an
  // operation is issued.
  virtual bool wait(uint64_t deadline_ns) noexcept = 0;
  // Ends the backend: nothing is issued any more. Does nothing without open(). `leaves_operations`:
  // the kernel still has some operations. Nobody learns their outcome; the memory that they use,
  // and this object, stay until the process ends.
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
  // one operation; the backends and `keys` outlive close(). `searcher`: carries out kExtents for
  // files that tell extents; nullptr: `backend` does, or there are no such files. `polled`: carries
  // out reads and writes within the limits of polled files; nullptr: no file is polled. Errors: the
  // backends'.
  Result<void> open(std::span<const FileOptions> files, FileBackend& backend, const KeyTable& keys,
                    FileBackend* searcher = nullptr, FileBackend* polled = nullptr);
  // Called when the shard's loop has ended. Ends waiting operations with ECANCELED, waits for those
  // that the kernel has, and reports each outcome. From then on begin() does nothing. Returns false
  // if the kernel has not answered within `patience_ns`, as for a file system whose server is gone:
  // the log names the files, and the operations run on until the process ends. Their memory, this
  // object and its backend must stay until then. Does nothing on a second call, or without open().
  bool close(uint64_t patience_ns) noexcept;
  // The files belong to the thread of `loop` (EventLoop::thread), which outlives this: debug builds
  // check it when an operation begins. Before the loop runs.
  void follow(const ThreadOwner& loop) noexcept { owner_.follow(loop); }

  const std::deque<File>& all() const noexcept { return files_; }
  // Invariants, looked at before and after each change: 1. No file has more operations in flight
  // than it may have, and operations wait only while it has that many. 2. issued_count_ is the sum
  // over the files; searched_count_ and polled_count_ together are at most that. 3. A waiting
  // operation is in flight for its owner, has not begun, and belongs to this file.
  bool is_valid() const noexcept;

  // Returns nullptr if no file has this name.
  File* find(std::string_view name) noexcept;

  // For the backend: the kernel answered `result`, bytes or -errno.
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

  ThreadOwner owner_;
  std::deque<File> files_;  // a deque keeps their addresses
  FileBackend* backend_ = nullptr;
  FileBackend* searcher_ = nullptr;
  FileBackend* polled_ = nullptr;
  uint32_t issued_count_ = 0;
  uint32_t searched_count_ = 0;  // those that searcher_ has
  uint32_t polled_count_ = 0;    // those that polled_ has
  bool is_closed_ = false;
};

}  // namespace bedplate
