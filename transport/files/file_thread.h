// Files without io_uring: a thread beside the shard blocks in the shard's stead. With io_uring it
// only finds extents (the `searcher` of Files::open): io_uring has no lseek(2).
//
// Operations travel to the thread and back through two lanes of pointers, each with a doorbell. So
// neither side allocates or locks, and a sleeping shard wakes. The thread carries out one operation
// after the other. It keeps the contract, but is not made for speed.
#pragma once

#include <atomic>
#include <memory>

#include "platform/thread_stack.h"
#include "transport/files/files.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/spsc_fifo_datapath.h"

namespace bedplate {

class FileThread final : public FileBackend, public PollSource {
 public:
  // `loop`: the shard's, which polls this.
  explicit FileThread(EventLoop& loop) noexcept : loop_doorbell_(loop.doorbell()) {}
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;
  ~FileThread() override { close(false); }

  // Errors: no memory for the thread's stack, no descriptors, or no thread.
  Result<void> open(Files& files, const KeyTable& keys, uint32_t operation_count_max) override;
  void issue(FileOperation& operation) noexcept override;
  bool wait(uint64_t deadline_ns) noexcept override;
  void close(bool leaves_operations) noexcept override;

  uint32_t poll(uint32_t budget) noexcept override;

 private:
  using Lane = SpscFifo<FileOperation*>;
  struct LaneDeleter {
    void operator()(Lane* lane) const noexcept;
  };
  using OwnedLane = std::unique_ptr<Lane, LaneDeleter>;
  static OwnedLane make_lane(uint32_t operation_count_max);

  void run() noexcept;
  void sleep() noexcept;

  Doorbell& loop_doorbell_;
  Doorbell doorbell_;  // the one that the thread sleeps on
  Files* files_ = nullptr;
  OwnedLane begun_;  // shard -> thread
  OwnedLane ended_;  // thread -> shard
  StackedThread thread_;
  bool is_running_ = false;
  std::atomic<bool> must_stop_{false};
};

}  // namespace bedplate
