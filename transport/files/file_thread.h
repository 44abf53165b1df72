// Files without io_uring: a thread beside the shard, which blocks in its stead.
//
// Operations go to it and come back through two lanes of pointers, each with a doorbell, so that
// neither side allocates or locks and a shard that sleeps is woken. The thread does one operation
// after the other: it keeps the contract, and is not made to be fast.
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
  // `loop`: of the shard; it polls this.
  explicit FileThread(EventLoop& loop) noexcept : loop_doorbell_(loop.doorbell()) {}
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;
  ~FileThread() override { close(false); }

  // Errors: no memory for its stack, no descriptors, or no thread.
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
  Doorbell doorbell_;  // the thread's
  Files* files_ = nullptr;
  OwnedLane begun_;  // to the thread
  OwnedLane ended_;  // to the shard
  StackedThread thread_;
  bool is_running_ = false;
  std::atomic<bool> must_stop_{false};
};

}  // namespace bedplate
