#include "platform/closing_thread.h"

#include <cstdint>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

constexpr uint64_t kStopPatienceNs = kNsPerSecond;
constexpr int kEnd = -1;

// `numbers`: the pipe's read end. The thread owns it, because it may outlive the object.
void close_what_comes(void* numbers) noexcept {
  const Fd pipe(static_cast<int>(reinterpret_cast<intptr_t>(numbers)));
  int number = kEnd;
  while (read(pipe.number(), &number, sizeof number) == sizeof number && number != kEnd) {
    ::close(number);
  }
}

}  // namespace

Result<void> ClosingThread::start() noexcept {
  BP_ASSERT(!numbers_.is_open());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return error_from_errno("opening a pipe to the thread that closes descriptors")
        .set_cure("raise the limit of open files (ulimit -n)");
  }
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  set_blocking(write_end.number(), false);
  BP_TRY(thread_.start("closing", close_what_comes,
                       reinterpret_cast<void*>(static_cast<intptr_t>(read_end.number()))));
  [[maybe_unused]] const int owned = read_end.release();
  numbers_ = std::move(write_end);
  return {};
}

void ClosingThread::close(Fd& descriptor) noexcept {
  if (!descriptor.is_open()) return;
  const int number = descriptor.number();
  // The pipe holds 16384 pending descriptors; if it is full, closes here.
  if (numbers_.is_open() && write(numbers_.number(), &number, sizeof number) == sizeof number) {
    [[maybe_unused]] const int closed_later = descriptor.release();
  } else {
    descriptor.close();
  }
}

void ClosingThread::stop() noexcept {
  if (!numbers_.is_open()) return;
  // A forked child may hold the write end, too, so closing it here may not end the thread. If the
  // pipe is full, the thread is waited for, and then left behind.
  [[maybe_unused]] const ssize_t told = write(numbers_.number(), &kEnd, sizeof kEnd);
  numbers_.close();
  thread_.join_or_leave(kStopPatienceNs);
}

}  // namespace bedplate
