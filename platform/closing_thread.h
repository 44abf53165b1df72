// Closes descriptors on a thread of its own, for a thread that may never wait.
//
// The last close of a file takes as long as its maker likes: a TCP socket with SO_LINGER waits
// until its data is taken, a FUSE file until its server answers. A process that reaches a Unix
// socket can send such a descriptor along, and the kernel closes it in whichever thread reads, or
// closes, that socket. Linux 6.16 can refuse descriptors (SO_PASSRIGHTS); before, this is the way
// to stay awake.
#pragma once

#include "platform/file.h"
#include "platform/result.h"
#include "platform/thread_stack.h"

namespace bedplate {

class ClosingThread {
 public:
  ClosingThread() noexcept = default;
  ClosingThread(const ClosingThread&) = delete;
  ClosingThread& operator=(const ClosingThread&) = delete;
  ~ClosingThread() { stop(); }

  // Errors: no memory for its stack, no descriptors, or no thread. Before the seal.
  Result<void> start() noexcept;

  // Takes `descriptor` and closes it soon. Without start() it is closed here and now. Never waits.
  // Threads: one at a time.
  void close(Fd& descriptor) noexcept;

  // Ends the thread. Descriptors that linger then get a moment, and are left to the end of the
  // process.
  void stop() noexcept;

 private:
  Fd numbers_;  // a pipe to the thread
  StackedThread thread_;
};

}  // namespace bedplate
