// A thread that closes descriptors for a thread that may never wait.
//
// The last close of a file may block: a TCP socket with SO_LINGER waits until its data is taken, a
// FUSE file until its server answers. A process that reaches a Unix socket can pass such a
// descriptor, and the kernel closes it in the thread that reads or closes that socket. Linux 6.16
// can refuse descriptors (SO_PASSRIGHTS); on earlier kernels the receiver hands them to this
// thread.
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

  // Errors (kSystem): no memory for its stack, no descriptors, or no thread. Requires: not started;
  // the pool is not sealed.
  Result<void> start() noexcept;

  // Takes `descriptor`, and does not wait: the thread closes it soon. The caller itself closes it,
  // and may wait, if the thread does not run or the pipe is full (it holds 16384 pending
  // descriptors). Threads: one at a time.
  void close(Fd& descriptor) noexcept;

  // Ends the thread. Pending descriptors get a second; after that they stay open until the process
  // ends. Does nothing without start(). Requires: the pipe has space for one more descriptor.
  // Threads: as close().
  void stop() noexcept;

 private:
  Fd numbers_;  // a pipe to the thread
  StackedThread thread_;
};

}  // namespace bedplate
