// The files of services in memory, for tests: operations fail, wait, or are lost in a power cut, as
// a test says.
//
// They stand behind Files (transport/files/files.h), so a service sees the contract of real files:
// callbacks from the loop, operations that wait for their turn, counters. There is no file system:
// paths and locks mean nothing here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/files/files.h"
#include "transport/loop/event_loop.h"

namespace bedplate::testing {

class MemoryFiles;

// One file. Threads: the test's, which is also the shard's.
class MemoryFile {
 public:
  // The bytes of the file, as a read sees them. A test may change them at any time.
  std::string content;

  // Makes `count` operations of this kind end with -error_number, without effect; `after_count`
  // operations succeed before that. A later call for the same action replaces this one. Requires:
  // `error_number` is neither EAGAIN nor EINTR, after which the runtime would try again.
  void fail(FileAction action, int error_number, uint32_t count = 1, uint32_t after_count = 0);
  // From now on no operation ends, not even one that has begun, until release().
  void hold() noexcept { is_held_ = true; }
  void release() noexcept { is_held_ = false; }
  // How many operations the runtime has handed over and that have not ended.
  uint32_t waiting_count() const noexcept { return waiting_count_; }

  // Sets `content` to what a power cut leaves: the content at the last sync, and durable writes
  // since then. The content before the first operation counts as synced. The service does not
  // notice: give the content to a new TestAppliance, and boot the service again.
  void cut_power() {
    if (is_used_) content = synced_;
  }

 private:
  friend class MemoryFiles;
  struct Failure {
    FileAction action;
    int error_number;
    uint32_t after_count;
    uint32_t count;
  };

  int failure_of(FileAction action) noexcept;
  int64_t carry_out(FileOperation& operation);
  int64_t read(FileOperation& operation) const;
  int64_t write(FileOperation& operation);
  void set_range(uint64_t offset, uint64_t bytes, bool may_grow);

  bool is_writable_ = false;
  bool is_held_ = false;
  bool is_used_ = false;
  uint32_t waiting_count_ = 0;
  std::string synced_;
  std::vector<Failure> failures_;
};

// The files of one shard: the backend of its Files, and a source of its loop, which ends operations
// in their order.
class MemoryFiles final : public FileBackend, public PollSource {
 public:
  // Adds the next file, in the order of Files::open. It outlives this.
  void add(MemoryFile& file, bool is_writable);

  // FileBackend:
  Result<void> open(Files& files, const KeyTable& keys, uint32_t operation_count_max) override;
  void issue(FileOperation& operation) noexcept override;
  // Also ends operations that are held.
  bool wait(uint64_t deadline_ns) noexcept override;
  void close(bool leaves_operations) noexcept override;

  // PollSource:
  uint32_t poll(uint32_t budget) noexcept override { return end_some(budget, false); }

 private:
  uint32_t end_some(uint32_t budget, bool with_held) noexcept;

  Files* files_ = nullptr;
  std::vector<MemoryFile*> all_;  // by File::index()
  std::vector<FileOperation*> issued_;
};

}  // namespace bedplate::testing
