// A forked process whose private memory other processes copy. The test knows the memory's address,
// and sends commands to the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/file.h"
#include "tests/support/patience.h"
#include "transport/single_copy/single_copy.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

// The value of byte `index` of memory that was filled with `seed`.
constexpr std::byte pattern(uint64_t index, uint64_t seed) noexcept {
  return static_cast<std::byte>((index + seed) * 0x9e3779b97f4a7c15u >> 56);
}

class CopyPeer {
 public:
  static constexpr uint64_t kBytes = (4u << 20) + (16u << 10);

  // The argument of a command, in the peer. The peer ends when the test's process ends.
  struct Inside {
    SingleCopy* copy = nullptr;
    std::byte* memory = nullptr;  // kBytes of pattern(index, 1), in small pages
    SingleCopyCard card;          // `card` and `range` go to the test after each command
    ExposedRange range;
  };
  using Command = void (*)(Inside&);

  // `prepare` runs first, before the peer opens its single copy.
  explicit CopyPeer(SingleCopyKind kind, Command prepare = nullptr) {
    void* taken = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory_ = static_cast<std::byte*>(taken);
    int ends[2];
    CHECK(taken != MAP_FAILED && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    Fd inner(ends[1]);
    socket_ = Fd(ends[0]);
    const pid_t child = fork();
    if (child == 0) {  // *this may lie in the heap, which is shared: the child writes no member
      close(socket_.number());
      serve(inner.number(), kind, prepare, memory_);
    }
    CHECK(child > 0);
    pid_ = child;
    pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    inner.close();
    receive();
  }
  CopyPeer(const CopyPeer&) = delete;
  CopyPeer& operator=(const CopyPeer&) = delete;
  ~CopyPeer() {
    end();
    munmap(memory_, kBytes);
  }

  // Runs `command` (no captures) in the peer, and waits for it.
  void run(Command command) {
    CHECK_EQUAL(static_cast<ssize_t>(sizeof command),
                send(socket_.number(), &command, sizeof command, MSG_NOSIGNAL));
    receive();
  }

  // Kills the peer, and waits until its pidfd reports the end. It stays a zombie if not `reaped`.
  void end(bool reaped = true) {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    has_input(pidfd_.number());
    if (!reaped) return;
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  SingleCopyPeer as_peer() const noexcept { return {pid_, pidfd_.number()}; }
  const SingleCopyCard& card() const noexcept { return card_; }
  const ExposedRange& range() const noexcept { return range_; }

 private:
  [[noreturn]] static void serve(int socket, SingleCopyKind kind, Command prepare,
                                 std::byte* memory) noexcept {
    Inside inside{.memory = memory, .card = {}, .range = {}};
    for (uint64_t i = 0; i < kBytes; ++i) memory[i] = pattern(i, 1);
    if (prepare != nullptr) prepare(inside);
    auto opened = open_single_copy(kind);
    if (!opened.ok()) _exit(1);
    inside.copy = opened.value().get();
    auto card = inside.copy->card();
    auto range = inside.copy->expose(memory, kBytes, true);
    if (!card.ok() || !range.ok()) _exit(1);
    inside.card = card.take();
    inside.range = range.take();
    Command command = nullptr;
    do {
      if (command != nullptr) command(inside);
      if (write(socket, &inside, sizeof inside) != sizeof inside) _exit(1);
    } while (read(socket, &command, sizeof command) == sizeof command);
    _exit(0);
  }

  void receive() {
    Inside inside;
    CHECK_EQUAL(static_cast<ssize_t>(sizeof inside),
                read(socket_.number(), &inside, sizeof inside));
    card_ = inside.card;
    range_ = inside.range;
  }

  std::byte* memory_ = nullptr;
  pid_t pid_ = 0;
  Fd socket_;
  Fd pidfd_;
  SingleCopyCard card_;
  ExposedRange range_;
};

}  // namespace bedplate::test
