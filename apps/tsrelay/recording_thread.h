// Empties the next files of recordings on a thread of its own: it may take long, and neither a
// shard nor the main thread may wait for it.
//
// It sleeps until its bell rings. A recording rings it when it begins to write the empty file, and
// when the last write to a full file has ended. The service's tick rings it to retry failed files.
#pragma once

#include <atomic>
#include <vector>

#include "apps/tsrelay/recording_datapath.h"
#include "platform/thread_stack.h"
#include "transport/loop/doorbell.h"

namespace bedplate::relay {

// Threads: the main thread, except for begin() and bell().ring().
class RecordingThread {
 public:
  RecordingThread() noexcept = default;
  RecordingThread(const RecordingThread&) = delete;
  RecordingThread& operator=(const RecordingThread&) = delete;
  ~RecordingThread() { (void)stop(); }

  // Called before recordings are made, since they use its bell. Errors: no descriptor is left.
  Result<void> create() noexcept { return bell_.create(); }
  // Requires: created; this and the recordings outlive the thread. Errors: no memory for its stack,
  // no thread.
  Result<void> start(std::vector<Recording*> recordings);
  // Allows the thread to empty files: the boot cannot fail any more. Threads: any.
  void begin() noexcept {
    is_begun_.store(true, std::memory_order_release);
    bell_.ring();
  }
  // Waits for the thread to end. Returns false if it hangs in the file system: it is left running
  // until the process ends, and still uses this and the recordings.
  [[nodiscard]] bool stop() noexcept;

  Doorbell& bell() noexcept { return bell_; }

 private:
  void run() noexcept;

  Doorbell bell_;
  std::vector<Recording*> recordings_;
  StackedThread thread_;
  bool is_running_ = false;
  std::atomic<bool> is_begun_{false};
  std::atomic<bool> must_stop_{false};
};

}  // namespace bedplate::relay
